package image

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
)

func TestWithTag(t *testing.T) {
	for in, want := range map[string]string{
		"busybox":             "busybox:latest",
		"busybox:1.37":        "busybox:1.37",
		"localhost:5000/x":    "localhost:5000/x:latest",
		"ghcr.io/a/b:v1":      "ghcr.io/a/b:v1",
		"a/b@sha256:" + hex64: "a/b@sha256:" + hex64,
		"registry.k8s.io/pause:3.10@sha256:" + hex64: "registry.k8s.io/pause:3.10@sha256:" + hex64,
	} {
		if got, err := withTag(in); err != nil || got != want {
			t.Errorf("withTag(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	_, err := withTag("UPPER")
	if want := `couldn't parse image name "UPPER": invalid reference format: repository name (library/UPPER) must be ` +
		`lowercase`; err == nil || err.Error() != want {
		t.Errorf("withTag(UPPER) = %v, want %s", err, want)
	}
}

const hex64 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestPolicyFor(t *testing.T) {
	parity.ProvesPart(t, 2, "LIFE-94")
	for _, tc := range []struct {
		policy v1.PullPolicy
		image  string
		want   v1.PullPolicy
	}{
		{"", "x", v1.PullAlways},
		{"", "x:latest", v1.PullAlways},
		{"", "x:1", v1.PullIfNotPresent},
		{"", "x@sha256:" + hex64, v1.PullIfNotPresent},
		{"", "x:latest@sha256:" + hex64, v1.PullAlways},
		{"", "registry.example.com:5000/x", v1.PullAlways},
		{v1.PullAlways, "x:1", v1.PullAlways},
		{v1.PullNever, "x", v1.PullNever},
		{v1.PullIfNotPresent, "x:latest", v1.PullIfNotPresent},
	} {
		if got := policyFor(tc.policy, tc.image); got != tc.want {
			t.Errorf("policyFor(%q, %s) = %s, want %s", tc.policy, tc.image, got, tc.want)
		}
	}
}

func TestDecide(t *testing.T) {
	for _, tc := range []struct {
		name          string
		policy        v1.PullPolicy
		present, done bool
		want          step
	}{
		{"Always pulls a present image", v1.PullAlways, true, false, pull},
		{"always pulls once for a start", v1.PullAlways, true, true, use},
		{"Always pulls again if the image was removed", v1.PullAlways, false, true, pull},
		{"IfNotPresent uses a present image", v1.PullIfNotPresent, true, false, use},
		{"IfNotPresent pulls a missing image", v1.PullIfNotPresent, false, false, pull},
		{"Never uses a present image", v1.PullNever, true, false, use},
		{"never does not pull", v1.PullNever, false, false, refuse},
	} {
		if got := decide(tc.policy, tc.present, tc.done); got != tc.want {
			t.Errorf("%s: decide = %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestBackoffDoubles(t *testing.T) {
	now := time.Unix(1000, 0)
	var b backoff
	for _, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
		b = b.next(now, nil)
		if b.delay != want*time.Second {
			t.Errorf("delay = %v, want %v", b.delay, want*time.Second)
		}
		now = b.until()
	}
	if b = b.next(now.Add(2*BackoffMax), nil); b.delay != BackoffInitial {
		t.Errorf("delay long after the last failure = %v, want the first one", b.delay)
	}
}

// TestPullText: the code Unknown is omitted, so that the text begins with the runtime's word for
// the failure.
func TestPullText(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{
			fmt.Errorf("pull image x: %w", status.Error(codes.Unknown, "RegistryUnavailable: no route")),
			"RegistryUnavailable: no route",
		},
		{
			fmt.Errorf("pull image x: %w", status.Error(codes.NotFound, "no such image")),
			"rpc error: code = NotFound desc = no such image",
		},
		{pod.ShowAs(`imageRef of image "x" is not set`, errors.New("no id")), `imageRef of image "x" is not set`},
	} {
		if got := pullText(tc.err); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

func TestFailedPull(t *testing.T) {
	parity.ProvesPart(t, 3, "LIFE-21")
	for _, tc := range []struct{ err, reason, message string }{
		{"rpc error: code = NotFound desc = no such image", "ErrImagePull",
			"rpc error: code = NotFound desc = no such image"},
		{"RegistryUnavailable: no route", "RegistryUnavailable",
			"image pull failed for x because the registry is unavailable: no route"},
		{"registry/RegistryUnavailable:1: not found", "ErrImagePull", "registry/RegistryUnavailable:1: not found"},
		{"SignatureValidationFailed: bad key", "SignatureValidationFailed",
			"image pull failed for x because the signature validation failed: bad key"},
	} {
		if got := failedPull("x", errors.New(tc.err)); *got != *newError(tc.reason, tc.message) {
			t.Errorf("failedPull(%q) = %+v", tc.err, got)
		}
	}
}

func TestPulledMessage(t *testing.T) {
	parity.ProvesPart(t, 3, "LIFE-97")
	got := pulledMessage("x:1", 1234567*time.Microsecond, 2*time.Second, 42)
	if want := `Successfully pulled image "x:1" in 1.234s (2s including waiting). Image size: 42 bytes.`; got != want {
		t.Errorf("message = %s, want %s", got, want)
	}
}
