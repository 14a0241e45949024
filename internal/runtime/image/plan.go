package image

import (
	"fmt"
	"strings"
	"time"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// withTag adds the default tag to a name that has neither tag nor digest. The
// rest of the name stays as the user wrote it: which registry a short name
// stands for is the runtime's business.
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

// repository is the full name without tag and digest, by which credentials are
// looked up.
func repository(image string) (string, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", fmt.Errorf("couldn't parse image name %q: %w", image, err)
	}
	return named.Name(), nil
}

// policyFor is the pull policy in force; the API server fills it in, files may
// leave it out.
func policyFor(policy v1.PullPolicy, image string) v1.PullPolicy {
	if policy != "" {
		return policy
	}
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return v1.PullIfNotPresent // no policy helps
	}
	if tagged, ok := reference.TagNameOnly(named).(reference.Tagged); ok && tagged.Tag() == defaultTag {
		return v1.PullAlways // beside a digest, too
	}
	return v1.PullIfNotPresent
}

type step int

const (
	use step = iota
	pull
	refuse
)

// decide says what to do about an image that is present or not. done says that
// this start has pulled it before.
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

// failedPull is how a failed pull is shown. Runtimes tell two kinds of failure
// apart from all others by the word that the error begins with.
func failedPull(image string, err error) *Error {
	text := err.Error()
	for _, k := range []struct{ word, because string }{
		{pod.ReasonRegistryUnavailable, "the registry is unavailable"},
		{pod.ReasonSignatureValidation, "the signature validation failed"},
	} {
		if more, ok := strings.CutPrefix(text, k.word); ok {
			return &Error{k.word, fmt.Sprintf("image pull failed for %s because %s%s", image, k.because, more)}
		}
	}
	return &Error{pod.ReasonErrImagePull, text}
}

// backoff is the wait between pulls of one image for one pod.
type backoff struct {
	delay  time.Duration
	failed time.Time
	last   *Error
}

// next doubles the wait after another failure; one that comes long after the
// last begins anew.
func (b backoff) next(now time.Time, err *Error) backoff {
	if b.delay == 0 || now.Sub(b.failed) > 2*BackoffMax {
		return backoff{BackoffInitial, now, err}
	}
	return backoff{min(2*b.delay, BackoffMax), now, err}
}

func (b backoff) until() time.Time { return b.failed.Add(b.delay) }

// show is when what the pod shows changes from the error itself to waiting.
func (b backoff) show() time.Time { return b.failed.Add(min(b.delay/2, BackoffInitial/2)) }

// waiting is how a pull that is put off is shown.
func (b backoff) waiting(image string) *Error {
	msg := backoffMessage(image)
	if b.last != nil {
		msg += ": " + b.last.Reason + ": " + b.last.Message
	}
	return &Error{pod.ReasonImagePullBackOff, msg}
}

func backoffMessage(image string) string { return fmt.Sprintf("Back-off pulling image %q", image) }

// presentMessage is the message for an image that need not be pulled. With recorded the pull records were checked.
func presentMessage(image string, recorded bool) string {
	msg := fmt.Sprintf("Container image %q already present on machine", image)
	if recorded {
		msg += " and can be accessed by the pod"
	}
	return msg
}

// pulledMessage tells of a pull. waited is all the time since it was wanted.
func pulledMessage(image string, took, waited time.Duration, size uint64) string {
	return fmt.Sprintf("Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.",
		image, took.Truncate(time.Millisecond), waited.Truncate(time.Millisecond), size)
}
