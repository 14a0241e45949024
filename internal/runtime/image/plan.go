package image

import (
	"fmt"
	"strings"
	"time"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// withTag adds the default tag to a name without tag and digest. The rest of the name is unchanged:
// the runtime resolves short names.
func withTag(image string) (string, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", fmt.Errorf("couldn't parse image name %q: %w", image, err)
	}
	if reference.IsNameOnly(named) {
		return image + ":" + defaultTag, nil
	}
	return image, nil
}

// repository returns the full name without tag and digest, by which credentials are looked up.
func repository(image string) (string, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", fmt.Errorf("couldn't parse image name %q: %w", image, err)
	}
	return named.Name(), nil
}

// policyFor returns the effective pull policy. The API server defaults it, but static pods may lack
// it.
func policyFor(policy v1.PullPolicy, image string) v1.PullPolicy {
	if policy != "" {
		return policy
	}
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return v1.PullIfNotPresent // an invalid name fails with any policy
	}
	if tagged, ok := reference.TagNameOnly(named).(reference.Tagged); ok && tagged.Tag() == defaultTag {
		return v1.PullAlways // even beside a digest
	}
	return v1.PullIfNotPresent
}

type step int

const (
	use step = iota
	pull
	refuse
)

// decide returns what to do for an image that is present or not. done is set if this start has
// pulled the image before.
func decide(policy v1.PullPolicy, present, done bool) step {
	switch {
	case present && (policy != v1.PullAlways || done):
		return use
	case policy == v1.PullNever:
		return refuse
	default:
		return pull
	}
}

// failedPull returns the error to show for a failed pull. Runtimes mark two kinds of failure by the
// first word of the message.
func failedPull(image string, err error) *Error {
	text := err.Error()
	for _, k := range []struct{ word, because string }{
		{pod.ReasonRegistryUnavailable, "the registry is unavailable"},
		{pod.ReasonSignatureValidation, "the signature validation failed"},
	} {
		if more, ok := strings.CutPrefix(text, k.word); ok {
			return newError(k.word, fmt.Sprintf("image pull failed for %s because %s%s", image, k.because, more))
		}
	}
	return newError(pod.ReasonErrImagePull, text)
}

// backoff is the back-off of pulls of one image for one pod.
type backoff struct {
	delay  time.Duration
	failed time.Time
	last   *Error
}

// next doubles the delay after another failure. A failure long after the last one starts with the
// initial delay.
func (b backoff) next(now time.Time, err *Error) backoff {
	if b.delay == 0 || now.Sub(b.failed) > 2*BackoffMax {
		return backoff{BackoffInitial, now, err}
	}
	return backoff{min(2*b.delay, BackoffMax), now, err}
}

func (b backoff) until() time.Time { return b.failed.Add(b.delay) }

// show returns when the container status changes from the pull error to the back-off.
func (b backoff) show() time.Time { return b.failed.Add(min(b.delay/2, BackoffInitial/2)) }

// waiting returns the error to show during the back-off.
func (b backoff) waiting(image string) *Error {
	msg := backoffMessage(image)
	if b.last != nil {
		msg += ": " + b.last.Reason + ": " + b.last.Message
	}
	return newError(pod.ReasonImagePullBackOff, msg)
}

func backoffMessage(image string) string { return fmt.Sprintf("Back-off pulling image %q", image) }

// presentMessage returns the message for an image that is not pulled. recorded is set if pull
// records were checked.
func presentMessage(image string, recorded bool) string {
	msg := fmt.Sprintf("Container image %q already present on machine", image)
	if recorded {
		msg += " and can be accessed by the pod"
	}
	return msg
}

// pulledMessage returns the message for a pull. waited is the time since the request.
func pulledMessage(image string, took, waited time.Duration, size uint64) string {
	return fmt.Sprintf("Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.",
		image, took.Truncate(time.Millisecond), waited.Truncate(time.Millisecond), size)
}
