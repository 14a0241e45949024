package podsync

import (
	"time"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
)

// images are what is known of the images of containers, by container name.
type images map[string]image

type image struct {
	attempt int       // of the container that it is for
	asked   time.Time // when the image was first requested for this attempt
	// failures is how often the container had failed to start when the image was last requested. After another failure it
	// is requested again, because it may have been removed.
	failures int
	result   ImageResult
}

func (i images) facts(t *tasks) map[string]podplan.Image {
	facts := make(map[string]podplan.Image, len(i))
	for name, f := range i {
		facts[name] = podplan.Image{
			Attempt: f.attempt,
			Ready:   f.result.Ready && f.failures == t.failures(name),
			RetryAt: f.result.RetryAt,
		}
	}
	return facts
}

// pulling reports whether any image is not ready.
func (i images) pulling() bool {
	for _, f := range i {
		if !f.result.Ready {
			return true
		}
	}
	return false
}

// pull requests the image of a container. It reports whether the result has changed.
func (w *worker) pull(step podplan.Step) (changed bool) {
	name := step.Target.Name
	kind, spec, ok := pod.Find(w.source.spec, name)
	if !ok {
		return false
	}
	before, known := w.images[name]
	known = known && before.attempt == step.Attempt
	now := image{
		attempt:  step.Attempt,
		asked:    before.asked,
		failures: w.tasks.failures(name),
		result:   w.s.cfg.Images.Ensure(w.source.spec, spec, step.Attempt),
	}
	if !known {
		now.asked = w.s.cfg.Now()
	}
	w.images[name] = now
	r := now.result
	if r.Reason != "" && (r.Reason != before.result.Reason || before.attempt != step.Attempt) {
		w.s.cfg.Runtime.NotStarted(kind, r.Reason)
	}
	w.waiting.seeImage(name, r)
	return !known || before.result != r || before.failures != now.failures
}

// seeImage shows why a container waits for its image, or that it waits no longer.
func (w *waiting) seeImage(name string, r ImageResult) {
	switch {
	case r.Reason != "":
		w.containers[name] = r.Waiting
	case r.Ready && isImageReason(w.containers[name].Reason):
		delete(w.containers, name)
	}
}

func isImageReason(reason string) bool {
	switch reason {
	case pod.ReasonErrImagePull, pod.ReasonImagePullBackOff, pod.ReasonErrImageNeverPull, pod.ReasonInvalidImageName,
		pod.ReasonImageInspectError, pod.ReasonRegistryUnavailable, pod.ReasonSignatureValidation:
		return true
	}
	return false
}
