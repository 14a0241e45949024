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

	"keelson/internal/pods/panics"
	"keelson/internal/pods/pod"
	"keelson/internal/runtime/cri"
)

// work processes one request. done is set if this start had its image before and only its presence
// is to be checked.
func (m *Manager) work(ctx context.Context, st *pullState, done bool) {
	req := st.req
	st.tried = st.tried && st.away > 0
	tagged, err := withTag(req.Image)
	if err != nil {
		m.fail(ctx, st, pod.EventInspectFailed,
			newError(pod.ReasonInvalidImageName,
				fmt.Sprintf("Failed to apply default image tag %q: %v", req.Image, err)))
		return
	}
	spec := &runtimeapi.ImageSpec{Image: tagged, Annotations: req.Pod.Annotations, RuntimeHandler: req.RuntimeHandler}
	policy := policyFor(req.Policy, req.Image)
	var have *runtimeapi.Image
	if policy != v1.PullAlways || done { // otherwise pulled in any case
		have, err = m.inspect(ctx, spec)
	}
	if err != nil {
		shown := newError(pod.ReasonImageInspectError,
			fmt.Sprintf("Failed to inspect image %q: %v", req.Image, cri.Cause(err)))
		if cri.IsUnavailable(err) {
			m.failAway(ctx, st, pod.EventInspectFailed, shown.Message, shown)
			return
		}
		m.fail(ctx, st, pod.EventInspectFailed, shown)
		return
	}
	next := decide(policy, have != nil, done)
	read := false // whether pull secrets were read
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
			m.event(ctx, req, v1.EventTypeNormal, pod.EventPulled, presentMessage(req.Image, m.cfg.Records != nil))
		}
		m.succeed(ctx, st, have.Id)
	case refuse:
		m.fail(ctx, st, pod.EventErrImageNeverPull,
			newError(pod.ReasonErrImageNeverPull,
				fmt.Sprintf("Container image %q is not present with pull policy of Never", req.Image)))
	case pull:
		m.pull(ctx, st, spec)
		read = true
	}
	if !read && !done {
		ctx, stop := context.WithTimeout(ctx, secretsTimeout)
		defer stop()
		m.pullSecrets(ctx, req) // records an event for missing ones
	}
}

// secretsTimeout bounds the check of pull secrets that no pull needs.
const secretsTimeout = 10 * time.Second

// inspect returns an image, nil if it is not present. Concurrent requests for one image share a
// call, which none of them can cancel.
func (m *Manager) inspect(ctx context.Context, spec *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	got := m.inspections.DoChan(spec.RuntimeHandler+" "+spec.Image, func() (any, error) {
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

func (m *Manager) pull(ctx context.Context, st *pullState, spec *runtimeapi.ImageSpec) {
	req, wanted := st.req, m.cfg.Now()
	m.mu.Lock()
	b, failedBefore := m.backoffs[backoffKey{req.Pod.UID, req.Image}]
	m.mu.Unlock()
	if failedBefore && wanted.Before(b.until()) {
		// Another container of the pod has tried.
		m.eventBackoff(req)
		m.finish(ctx, st, func(time.Time) {
			st.err, st.retry, st.backoff, st.announced = b.waiting(req.Image), b.until(), true, true
		})
		return
	}
	if !st.tried {
		m.event(ctx, req, v1.EventTypeNormal, pod.EventPulling, fmt.Sprintf("Pulling image %q", req.Image))
	}
	st.tried = true
	ref, took, err := m.pullInTurn(ctx, req, spec)
	if err != nil {
		text, shown := fmt.Sprintf("Failed to pull image %q: %v", req.Image, err), failedPull(req.Image, err)
		if errors.As(err, new(awayError)) {
			m.failAway(ctx, st, pod.EventFailed, text, shown)
			return
		}
		m.event(ctx, req, v1.EventTypeWarning, pod.EventFailed, text)
		m.eventError(ctx, req, shown)
		m.finish(ctx, st, func(now time.Time) {
			k := backoffKey{req.Pod.UID, req.Image}
			b := m.backoffs[k].next(now, shown)
			m.backoffs[k] = b
			st.err, st.retry, st.backoff, st.away = shown, b.until(), true, 0
		})
		return
	}
	var size uint64
	if img, err := m.inspect(ctx, spec); err != nil {
		m.cfg.Log.Warn("failed to read the size of a pulled image", "pod", req.Pod.Namespace+"/"+req.Pod.Name, "podUID",
			req.Pod.UID, "image", req.Image, "err", err)
	} else {
		size = img.GetSize()
	}
	m.metrics.pulled(took, size)
	m.event(ctx, req, v1.EventTypeNormal, pod.EventPulled,
		pulledMessage(req.Image, took, m.cfg.Now().Sub(wanted), size))
	m.succeed(ctx, st, ref)
}

// mustPull reports whether the pod has to prove its access to an image that is present, and whether
// its pull secrets were read for that. It may call credential plugins.
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

// qpsExceeded is the error of a pull beyond the node's rate limit. It is retried like any other
// failure.
const qpsExceeded = "pull QPS exceeded"

// pullInTurn waits for a slot and pulls, trying one credential after the other.
func (m *Manager) pullInTurn(
	ctx context.Context, req Request, spec *runtimeapi.ImageSpec,
) (ref string, took time.Duration, err error) {
	creds, err := m.credentials(ctx, req)
	if err != nil {
		return "", 0, err
	}
	if m.slots != nil {
		if err := m.slots.Acquire(ctx, 1); err != nil {
			return "", 0, err
		}
		defer m.slots.Release(1)
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
			errs = append(errs, qpsExceeded)
			break
		}
		resp, err := m.cfg.Runtime.PullImage(ctx, &runtimeapi.PullImageRequest{
			Image:         spec,
			Auth:          cred.Auth,
			SandboxConfig: sandboxConfig(req.Pod),
		})
		if err == nil {
			if m.cfg.Records != nil {
				m.cfg.Records.Pulled(req.Image, resp.ImageRef, cred)
			}
			return resp.ImageRef, m.cfg.Now().Sub(start), nil
		}
		if ctx.Err() != nil {
			return "", 0, ctx.Err()
		}
		if cri.IsUnavailable(err) && m.runtimeAway(ctx, spec) {
			return "", 0, awayError(pullText(err))
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

// runtimeAway reports whether the runtime cannot be reached. The error of a pull does not show that: a pull may also
// return Unavailable because of the registry.
func (m *Manager) runtimeAway(ctx context.Context, spec *runtimeapi.ImageSpec) bool {
	_, err := m.inspect(ctx, spec)
	return cri.IsUnavailable(err)
}

// awayError is the error of a pull that failed because the runtime cannot be reached.
type awayError string

func (e awayError) Error() string { return string(e) }

// pullText returns the text to show for a failed pull: the runtime's message, with the status code
// unless it is Unknown.
func pullText(err error) string {
	if status.Code(err) == codes.Unknown {
		return cri.Message(err)
	}
	return cri.Text(err)
}

// sandboxConfig identifies the pod to the runtime.
func sandboxConfig(p *v1.Pod) *runtimeapi.PodSandboxConfig {
	labels := map[string]string{}
	for k, v := range p.Labels {
		labels[k] = v
	}
	labels[pod.LabelPodName], labels[pod.LabelPodNamespace], labels[pod.LabelPodUID] = p.Name, p.Namespace, string(
		p.UID)
	return &runtimeapi.PodSandboxConfig{
		Metadata:    &runtimeapi.PodSandboxMetadata{Name: p.Name, Namespace: p.Namespace, Uid: string(p.UID)},
		Labels:      labels,
		Annotations: p.Annotations,
	}
}

// succeed ends the work with the image present.
func (m *Manager) succeed(ctx context.Context, st *pullState, ref string) {
	m.finish(ctx, st, func(now time.Time) { st.ref, st.at, st.pulled, st.away = ref, now, true, 0 })
}

// fail ends the work without a pull. The request is retried like a failed pull, unless the image
// name is invalid.
func (m *Manager) fail(ctx context.Context, st *pullState, event string, shown *Error) {
	if ctx.Err() != nil {
		m.finish(ctx, st, nil)
		return
	}
	m.event(ctx, st.req, v1.EventTypeWarning, event, shown.Message)
	m.eventError(ctx, st.req, shown)
	m.finish(ctx, st, func(now time.Time) {
		st.err, st.away = shown, 0
		if shown.Reason != pod.ReasonInvalidImageName {
			st.retry = now.Add(BackoffInitial)
		}
	})
}

// failAway ends the work because the runtime cannot be reached. The image is not the cause, so the work is repeated
// soon, and no back-off of the pull begins. Events are recorded only for the first of consecutive failures.
func (m *Manager) failAway(ctx context.Context, st *pullState, event, message string, shown *Error) {
	if st.away == 0 {
		m.event(ctx, st.req, v1.EventTypeWarning, event, message)
		m.eventError(ctx, st.req, shown)
	}
	m.finish(ctx, st, func(now time.Time) {
		st.away = min(max(awayInitial, 2*st.away), BackoffInitial)
		st.err, st.retry = shown, now.Add(st.away)
	})
}

// awayInitial is the first pause while the runtime cannot be reached. It doubles up to [BackoffInitial].
const awayInitial = time.Second

func (m *Manager) event(ctx context.Context, req Request, eventType, reason, message string) {
	if ctx.Err() == nil {
		m.cfg.Events.Pod(req.Pod, req.Container, eventType, reason, message)
	}
}

// eventError records an event for the container, besides the one with the details.
func (m *Manager) eventError(ctx context.Context, req Request, e *Error) {
	m.event(ctx, req, v1.EventTypeWarning, pod.EventFailed, "Error: "+e.Reason)
}

func (m *Manager) eventBackoff(req Request) {
	m.event(m.ctx, req, v1.EventTypeNormal, pod.EventBackOff, backoffMessage(req.Image))
	m.event(m.ctx, req, v1.EventTypeWarning, pod.EventFailed, "Error: "+pod.ReasonImagePullBackOff)
}
