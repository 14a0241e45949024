package image

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// ForPods pulls the images of a pod's containers, and of the image volumes that they mount.
type ForPods struct {
	*Manager
	// Handler returns the pod's runtime handler; nil if images do not depend on it.
	Handler func(*v1.Pod) (string, error)
}

// Container ensures the images of a container and of its image volumes. It never blocks; Config.OnChange is called
// when the result changes.
func (f ForPods) Container(p *v1.Pod, spec *v1.Container, attempt int) (r Result, ready bool) {
	handler, err := f.handlerOf(p)
	if err != nil {
		return Result{}, false // the start of the sandbox fails with the same error and reports it
	}
	r, ready = f.Ensure(Request{
		Pod:            p,
		Container:      spec.Name,
		Image:          spec.Image,
		Policy:         spec.ImagePullPolicy,
		Attempt:        attempt,
		RuntimeHandler: handler,
	})
	ref := r.Ref
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if r.Err != nil {
			break
		}
		mounted := func(m v1.VolumeMount) bool { return m.Name == v.Name }
		if v.Image == nil || !slices.ContainsFunc(spec.VolumeMounts, mounted) {
			continue
		}
		var present bool
		r, present = f.Ensure(volumeRequest(p, v, handler))
		ready = ready && present
	}
	r.Ref = ref
	return r, ready
}

// Volume waits for the image of an image volume.
func (f ForPods) Volume(ctx context.Context, p *v1.Pod, v *v1.Volume) (ref string, err error) {
	handler, err := f.handlerOf(p)
	if err != nil {
		return "", err
	}
	return f.Fetch(ctx, volumeRequest(p, v, handler))
}

func (f ForPods) handlerOf(p *v1.Pod) (string, error) {
	if f.Handler == nil {
		return "", nil
	}
	return f.Handler(p)
}

func volumeRequest(p *v1.Pod, v *v1.Volume, handler string) Request {
	return Request{
		Pod:            p,
		Volume:         v.Name,
		Image:          v.Image.Reference,
		Policy:         v.Image.PullPolicy,
		RuntimeHandler: handler,
	}
}
