package image

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/node/panics"
	"keelson/internal/pods/pod"
	"keelson/internal/runtime/cri"
)

// work brings one wish to its end. done says that this start had its image
// before and only wants to know that it is still there.
func (m *Manager) work(ctx context.Context, w *wish, done bool) {
	req := w.req
	tagged, err := withTag(req.Image)
	if err != nil {
		m.fail(ctx, w, pod.EventInspectFailed, &Error{pod.ReasonInvalidImageName, fmt.Sprintf("Failed to apply default image tag %q: %v", req.Image, err)})
		return
	}
	spec := &runtimeapi.ImageSpec{Image: tagged, Annotations: req.Pod.Annotations, RuntimeHandler: req.RuntimeHandler}
	policy := policyFor(req.Policy, req.Image)
	var have *runtimeapi.Image
	if policy != v1.PullAlways || done { // else it is pulled, whatever is there
		have, err = m.read(ctx, spec)
	}
	if err != nil {
		m.fail(ctx, w, pod.EventInspectFailed, &Error{pod.ReasonImageInspectError, fmt.Sprintf("Failed to inspect image %q: %v", req.Image, cri.Cause(err))})
		return
	}
	next := decide(policy, have != nil, done)
	read := false // the pull secrets
	if next == use && !done {
		var must bool
		if must, read = m.mustPull(ctx, req, have.Id); must {
			next = decide(policy, false, done)
		}
	}
	if !done {
		m.metrics.ensured(policy, have != nil, next)
	}
	switch next {
	case use:
		if !done {
			m.say(ctx, req, v1.EventTypeNormal, pod.EventPulled, presentMessage(req.Image, m.cfg.Records != nil))
		}
		m.succeed(ctx, w, have.Id)
	case refuse:
		m.fail(ctx, w, pod.EventErrImageNeverPull, &Error{pod.ReasonErrImageNeverPull, fmt.Sprintf("Container image %q is not present with pull policy of Never", req.Image)})
	case pull:
		m.pull(ctx, w, spec)
		read = true
	}
	if !read && !done {
		ctx, stop := context.WithTimeout(ctx, needlessPatience)
		defer stop()
		m.pullSecrets(ctx, req) // tells of those that are missing
	}
}

// needlessPatience is how long pull secrets are waited for that no pull needs.
const needlessPatience = 10 * time.Second

// read reads an image, nil if it is not there. Wishes for one image at the same
// time share a read; it is not any one's to end.
func (m *Manager) read(ctx context.Context, spec *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	got := m.reads.DoChan(spec.RuntimeHandler+" "+spec.Image, func() (any, error) {
		var resp *runtimeapi.ImageStatusResponse
		err := panics.Try(m.cfg.Log, "images", func() (err error) {
			resp, err = m.cfg.Runtime.ImageStatus(m.ctx, &runtimeapi.ImageStatusRequest{Image: spec})
			return err
		})
		return resp.GetImage(), err
	})
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case r := <-got:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*runtimeapi.Image), nil
	}
}

func (m *Manager) pull(ctx context.Context, w *wish, spec *runtimeapi.ImageSpec) {
	req, wanted := w.req, m.cfg.Now()
	m.mu.Lock()
	b, failedBefore := m.backoffs[backoffKey{req.Pod.UID, req.Image}]
	m.mu.Unlock()
	if failedBefore && wanted.Before(b.until()) {
		// Another container of the pod has tried.
		m.sayBackoff(req)
		m.finish(ctx, w, func(time.Time) { w.err, w.retry, w.backoff, w.said = b.waiting(req.Image), b.until(), true, true })
		return
	}
	m.say(ctx, req, v1.EventTypeNormal, pod.EventPulling, fmt.Sprintf("Pulling image %q", req.Image))
	ref, took, err := m.pullInTurn(ctx, req, spec)
	if err != nil {
		if ctx.Err() != nil {
			m.finish(ctx, w, nil)
			return
		}
		m.say(ctx, req, v1.EventTypeWarning, pod.EventFailed, fmt.Sprintf("Failed to pull image %q: %v", req.Image, err))
		shown := failedPull(req.Image, err)
		m.sayError(ctx, req, shown)
		m.finish(ctx, w, func(now time.Time) {
			k := backoffKey{req.Pod.UID, req.Image}
			b := m.backoffs[k].next(now, shown)
			m.backoffs[k] = b
			w.err, w.retry, w.backoff = shown, b.until(), true
		})
		return
	}
	var size uint64
	if img, err := m.read(ctx, spec); err != nil {
		m.cfg.Log.Warn("cannot read the size of a pulled image", "pod", pod.RefOf(req.Pod), "image", req.Image, "err", err)
	} else {
		size = img.GetSize()
	}
	m.metrics.pulled(took, size)
	m.say(ctx, req, v1.EventTypeNormal, pod.EventPulled, pulledMessage(req.Image, took, m.cfg.Now().Sub(wanted), size))
	m.succeed(ctx, w, ref)
}

// mustPull reports whether the pod has to show that it may have an image that is
// there, and whether its pull secrets were read for that. That may take a while:
// plugins are asked for credentials.
func (m *Manager) mustPull(ctx context.Context, req Request, ref string) (must, read bool) {
	if m.cfg.Records == nil {
		return false, false
	}
	must = m.cfg.Records.MustPull(req.Image, ref, func() ([]Credential, error) {
		read = true
		return m.credentials(ctx, req)
	})
	return must, read
}

// tooMany is how a pull fails that the node's rate has no room for. It is tried
// again as after any failure.
const tooMany = "pull QPS exceeded"

// pullInTurn waits for its turn and pulls, with one credential after the other.
func (m *Manager) pullInTurn(ctx context.Context, req Request, spec *runtimeapi.ImageSpec) (ref string, took time.Duration, err error) {
	creds, err := m.credentials(ctx, req)
	if err != nil {
		return "", 0, err
	}
	if m.pulls != nil {
		if err := m.pulls.Acquire(ctx, 1); err != nil {
			return "", 0, err
		}
		defer m.pulls.Release(1)
	}
	if m.cfg.Records != nil {
		if err := m.cfg.Records.Pulling(req.Image); err != nil {
			text := fmt.Sprintf("Failed to record image pull intent for container image %q: %v", req.Image, err)
			return "", 0, errors.New(text)
		}
		defer func() {
			if err != nil {
				m.cfg.Records.Failed(req.Image)
			}
		}()
	}
	start := m.cfg.Now()
	if len(creds) == 0 {
		creds = []Credential{{}}
	}
	var errs []string
	for _, cred := range creds {
		if m.rate != nil && !m.rate.AllowN(m.cfg.Now(), 1) {
			errs = append(errs, tooMany)
			break
		}
		resp, err := m.cfg.Runtime.PullImage(ctx, &runtimeapi.PullImageRequest{Image: spec, Auth: cred.Auth, SandboxConfig: sandboxConfig(req.Pod)})
		if err == nil {
			if m.cfg.Records != nil {
				m.cfg.Records.Pulled(req.Image, resp.ImageRef, cred)
			}
			return resp.ImageRef, m.cfg.Now().Sub(start), nil
		}
		if ctx.Err() != nil {
			return "", 0, ctx.Err()
		}
		if text := pullText(err); !slices.Contains(errs, text) {
			errs = append(errs, text)
		}
	}
	if len(errs) == 1 {
		return "", 0, errors.New(errs[0])
	}
	return "", 0, errors.New("[" + strings.Join(errs, ", ") + "]")
}

// pullText is what users are shown of a pull that failed: the runtime's words, with the code where it has one
// that says something.
func pullText(err error) string {
	if status.Code(err) == codes.Unknown {
		return cri.Message(err)
	}
	return cri.Text(err)
}

// sandboxConfig tells the runtime for whom it pulls.
func sandboxConfig(p *v1.Pod) *runtimeapi.PodSandboxConfig {
	labels := map[string]string{}
	for k, v := range p.Labels {
		labels[k] = v
	}
	labels[pod.LabelPodName], labels[pod.LabelPodNamespace], labels[pod.LabelPodUID] = p.Name, p.Namespace, string(p.UID)
	return &runtimeapi.PodSandboxConfig{
		Metadata:    &runtimeapi.PodSandboxMetadata{Name: p.Name, Namespace: p.Namespace, Uid: string(p.UID)},
		Labels:      labels,
		Annotations: p.Annotations,
	}
}

// succeed ends the work with the image there.
func (m *Manager) succeed(ctx context.Context, w *wish, ref string) {
	m.finish(ctx, w, func(now time.Time) { w.ref, w.at, w.pulled = ref, now, true })
}

// fail ends the work without a pull. It may be tried again as after a failed
// pull, except that a name that is wrong stays wrong.
func (m *Manager) fail(ctx context.Context, w *wish, event string, shown *Error) {
	if ctx.Err() != nil {
		m.finish(ctx, w, nil)
		return
	}
	m.say(ctx, w.req, v1.EventTypeWarning, event, shown.Message)
	m.sayError(ctx, w.req, shown)
	m.finish(ctx, w, func(now time.Time) {
		w.err = shown
		if shown.Reason != pod.ReasonInvalidImageName {
			w.retry = now.Add(BackoffInitial)
		}
	})
}

func (m *Manager) say(ctx context.Context, req Request, eventType, reason, message string) {
	if ctx.Err() == nil {
		m.cfg.Events.Pod(req.Pod, req.Container, eventType, reason, message)
	}
}

// sayError tells that the container cannot be made, next to the reason.
func (m *Manager) sayError(ctx context.Context, req Request, e *Error) {
	m.say(ctx, req, v1.EventTypeWarning, pod.EventFailed, "Error: "+e.Reason)
}

func (m *Manager) sayBackoff(req Request) {
	m.say(m.ctx, req, v1.EventTypeNormal, pod.EventBackOff, backoffMessage(req.Image))
	m.say(m.ctx, req, v1.EventTypeWarning, pod.EventFailed, "Error: "+pod.ReasonImagePullBackOff)
}
