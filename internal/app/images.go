package app

import (
	"cmp"
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	v1beta1 "k8s.io/kubelet/config/v1beta1"

	"keelson/internal/pods/podsync"
	"keelson/internal/resources/machine"
	"keelson/internal/runtime/image"
	"keelson/internal/runtime/image/gc"
	"keelson/internal/runtime/image/provider"
	"keelson/internal/runtime/image/record"
)

// buildImages builds what fetches images, and what removes them.
func (a *agent) buildImages() error {
	k := &a.cfg.Kubelet
	cfg := image.Config{Runtime: a.runtime, Events: a.events, OnChange: a.wake, Parallel: parallelPulls(k), Registry: a.metrics,
		Sources: []image.Source{image.DefaultNodeFiles(a.cfg.Flags.RootDir)}, QPS: float64(*k.RegistryPullQPS), Burst: int(k.RegistryBurst), Log: a.log, Now: time.Now}
	if a.api != nil {
		cfg.Secrets = a.objects
	}
	if path := a.cfg.Flags.ImageCredentialProviderConfig; path != "" {
		plugins := provider.Config{Path: path, BinDir: a.cfg.Flags.ImageCredentialProviderBinDir, Registry: a.metrics, Log: a.log, Now: time.Now,
			AllowTokens: a.cfg.Gates.Enabled("KubeletServiceAccountTokenForCredentialProviders")}
		if a.api != nil {
			plugins.Tokens, plugins.Account = a.tokens, a.serviceAccount
		}
		source, err := provider.New(plugins)
		if err != nil {
			return err
		}
		cfg.Sources = append(cfg.Sources, source)
	}
	var onPass func([]*runtimeapi.Image, time.Time)
	if a.cfg.Gates.Enabled("KubeletEnsureSecretPulledImages") {
		var err error
		a.pulls, err = record.New(record.Config{Root: a.cfg.Flags.RootDir, Images: a.listImages, Registry: a.metrics, Unusable: a.unusable, Log: a.log, Now: time.Now,
			Policy: record.Policy{Verify: k.ImagePullCredentialsVerificationPolicy, Allowed: k.PreloadedImagesVerificationAllowlist}})
		if err != nil {
			return err
		}
		cfg.Records, onPass = a.pulls, a.pulls.Review
	}
	fetcher, err := image.New(cfg)
	if err != nil {
		return err
	}
	a.images = images{Manager: fetcher}
	if a.cfg.Gates.Enabled("RuntimeClassInImageCriApi") {
		a.images.handler = a.classes.Handler
	}
	a.imageGC, err = gc.New(gc.Config{Runtime: a.runtime, Filesystem: machine.ReadFilesystem, InUse: a.imagesInUse, After: a.observed.Synced(), OnPass: onPass,
		High: int(*k.ImageGCHighThresholdPercent), Low: int(*k.ImageGCLowThresholdPercent), MinAge: k.ImageMinimumGCAge.Duration,
		MaxAge: k.ImageMaximumGCAge.Duration, Events: a.events, Registry: a.metrics, Tracer: a.tracer(), Log: a.log, Now: time.Now})
	return err
}

func (a *agent) listImages(ctx context.Context) ([]*runtimeapi.Image, error) {
	resp, err := a.runtime.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	return resp.GetImages(), err
}

// serviceAccount reads one service account from the API server.
func (a *agent) serviceAccount(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error) {
	var sa v1.ServiceAccount
	err := a.api.Core().Get().Namespace(namespace).Resource("serviceaccounts").Name(name).Do(ctx).Into(&sa)
	return &sa, err
}

// imagesInUse are the images of all containers that the runtime has, ours or
// not, of the volumes that ours mount, and those that are about to be used.
func (a *agent) imagesInUse(ctx context.Context) ([]string, error) {
	used := a.images.InUse()
	for _, uid := range a.observed.UIDs() {
		have, _ := a.observed.Get(uid) // what was last seen is better than nothing
		for _, c := range have.Containers {
			for _, m := range c.Mounts {
				if m.Image != "" {
					used = append(used, m.Image)
				}
			}
		}
	}
	resp, err := a.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, err
	}
	for _, c := range resp.GetContainers() {
		used = append(used, cmp.Or(c.GetImageId(), c.GetImageRef(), c.GetImage().GetImage()))
	}
	return used, nil
}

// parallelPulls is how many images are pulled at a time; zero for any number.
func parallelPulls(k *v1beta1.KubeletConfiguration) int {
	switch {
	case *k.SerializeImagePulls:
		return 1
	case k.MaxParallelImagePulls == nil:
		return 0
	}
	return int(*k.MaxParallelImagePulls)
}

// images fetches images in the words of the syncer and of the volumes.
type images struct {
	*image.Manager
	// handler resolves the runtime handler that images are kept for; nil when
	// they are the same for all of them (gate RuntimeClassInImageCriApi).
	handler func(*v1.Pod) (string, error)
}

// Ensure tells how far the container's image is, and the images that it mounts:
// what is wrong with one of those is shown on the containers that mount it.
func (i images) Ensure(p *v1.Pod, spec *v1.Container, attempt int) podsync.ImageResult {
	handler, err := i.handlerOf(p)
	if err != nil {
		return podsync.ImageResult{} // the sandbox says why
	}
	r, ready := i.Manager.Ensure(image.Request{Pod: p, Container: spec.Name, Image: spec.Image, Policy: spec.ImagePullPolicy,
		Attempt: attempt, RuntimeHandler: handler})
	ref := r.Ref
	for j := range p.Spec.Volumes {
		v := &p.Spec.Volumes[j]
		if r.Err != nil {
			break
		}
		if v.Image == nil || !slices.ContainsFunc(spec.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == v.Name }) {
			continue
		}
		var there bool
		r, there = i.Manager.Ensure(volumeImage(p, v, handler))
		ready = ready && there
	}
	if r.Err != nil {
		return podsync.ImageResult{Reason: r.Err.Reason, Message: r.Err.Message, RetryAt: r.RetryAt}
	}
	return podsync.ImageResult{Ready: ready, Ref: ref}
}

// Volume waits for the image of an image volume.
func (i images) Volume(ctx context.Context, p *v1.Pod, v *v1.Volume) (ref string, err error) {
	handler, err := i.handlerOf(p)
	if err != nil {
		return "", err
	}
	return i.Fetch(ctx, volumeImage(p, v, handler))
}

func (i images) handlerOf(p *v1.Pod) (string, error) {
	if i.handler == nil {
		return "", nil
	}
	return i.handler(p)
}

func volumeImage(p *v1.Pod, v *v1.Volume, handler string) image.Request {
	return image.Request{Pod: p, Volume: v.Name, Image: v.Image.Reference, Policy: v.Image.PullPolicy, RuntimeHandler: handler}
}
