package image

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/test/kit/eventlog"
	"keelson/test/kit/parity"
)

// fakeRuntime has images, takes time to pull, and requires the password of private ones.
type fakeRuntime struct {
	mu       sync.Mutex
	images   map[string]*runtimeapi.Image
	remote   map[string]string // name → password; empty: public
	latency  time.Duration
	broken   error
	refused  error // of pulls
	statuses int
	pulls    []string // user names tried
	now, max int      // concurrent pulls
}

func (f *fakeRuntime) ImageStatus(
	_ context.Context, r *runtimeapi.ImageStatusRequest,
) (*runtimeapi.ImageStatusResponse, error) {
	time.Sleep(time.Millisecond)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.statuses++
	if f.broken != nil {
		return nil, f.broken
	}
	return &runtimeapi.ImageStatusResponse{Image: f.images[r.Image.Image]}, nil
}

func (f *fakeRuntime) PullImage(
	ctx context.Context, r *runtimeapi.PullImageRequest,
) (*runtimeapi.PullImageResponse, error) {
	f.mu.Lock()
	f.now++
	f.max = max(f.max, f.now)
	f.pulls = append(f.pulls, r.Auth.GetUsername())
	f.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-time.After(f.latency):
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now--
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if f.refused != nil {
		return nil, f.refused
	}
	password, ok := f.remote[r.Image.Image]
	if !ok || password != r.Auth.GetPassword() && password != "" {
		return nil, errors.New("no such image, or not for you")
	}
	f.images[r.Image.Image] = &runtimeapi.Image{Id: "sha256:" + r.Image.Image, Size: 42}
	return &runtimeapi.PullImageResponse{ImageRef: "sha256:" + r.Image.Image}, nil
}

func (f *fakeRuntime) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// fakeSecrets are the secrets of namespace ns.
type fakeSecrets map[string]*v1.Secret

func (f fakeSecrets) Secret(_ context.Context, namespace, name string) (*v1.Secret, error) {
	if s, ok := f[name]; ok && namespace == "ns" {
		return s, nil
	}
	return nil, errors.New("not found")
}

type rig struct {
	*Manager
	fake    *fakeRuntime
	events  *eventlog.Log
	stop    context.CancelFunc
	changed int
	mu      sync.Mutex
}

func inTime(t *testing.T, setup func(*Config), test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{
			fake: &fakeRuntime{
				images:  map[string]*runtimeapi.Image{},
				remote:  map[string]string{"web:1": "", "web:latest": ""},
				latency: time.Second,
			},
			events: &eventlog.Log{},
		}
		cfg := Config{
			Runtime: r.fake,
			Events:  r.events,
			OnChange: func(types.UID) {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.changed++
			},
			Log: slog.New(slog.DiscardHandler),
			Now: time.Now,
		}
		if setup != nil {
			setup(&cfg)
		}
		var err error
		if r.Manager, err = New(cfg); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		r.stop = cancel
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		test(t, r)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func want(uid, image string, policy v1.PullPolicy, attempt int) Request {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod-" + uid, UID: types.UID(uid)}}
	return Request{Pod: p, Container: "main", Image: image, Policy: policy, Attempt: attempt}
}

// reached calls Ensure until the result is final.
func (r *rig) reached(req Request) (Result, bool) {
	for {
		res, ready := r.Ensure(req)
		if !res.Pulling {
			return res, ready
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
	}
}

func (r *rig) expect(t *testing.T, want ...string) {
	t.Helper()
	if got := r.events.Take(); !slices.Equal(got, want) {
		t.Errorf("events:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestPullPolicies(t *testing.T) {
	parity.ProvesPart(t, 2, "LIFE-94")
	parity.ProvesPart(t, 4, "LIFE-96")
	parity.ProvesPart(t, 3, "LIFE-97")
	t.Run("a missing image is pulled", func(t *testing.T) {
		inTime(t, nil, func(t *testing.T, r *rig) {
			if res, ready := r.Ensure(want("u1", "web:1", v1.PullIfNotPresent, 0)); ready || !res.Pulling {
				t.Errorf("Ensure = %+v, %v; want a back-off", res, ready)
			}
			res, ready := r.reached(want("u1", "web:1", v1.PullIfNotPresent, 0))
			if !ready || res.Ref != "sha256:web:1" || r.changed != 1 {
				t.Errorf("Ensure = %+v, %v after %d wake-ups", res, ready, r.changed)
			}
			r.expect(
				t,
				`pod-u1/main Normal Pulling Pulling image "web:1"`,
				`pod-u1/main Normal Pulled Successfully pulled image "web:1" in 1s (1.001s including waiting). Image size: 42 `+
					`bytes.`,
			)
		})
	})
	t.Run("a present image is used", func(t *testing.T) {
		inTime(t, nil, func(t *testing.T, r *rig) {
			r.fake.images["web:1"] = &runtimeapi.Image{Id: "sha256:here"}
			for _, policy := range []v1.PullPolicy{v1.PullIfNotPresent, v1.PullNever} {
				if res, ready := r.reached(want(string(policy), "web:1", policy, 0)); !ready ||
					res.Ref != "sha256:here" {
					t.Errorf("%s: Ensure = %+v, %v", policy, res, ready)
				}
				r.expect(
					t,
					"pod-"+string(policy)+`/main Normal Pulled Container image "web:1" already present on machine`,
				)
			}
			if len(r.fake.pulls) != 0 {
				t.Errorf("%d pulls, want none", len(r.fake.pulls))
			}
		})
	})
	t.Run("always pulls once for each start", func(t *testing.T) {
		inTime(t, nil, func(t *testing.T, r *rig) {
			for attempt := range 3 {
				for range 4 {
					r.reached(want("u1", "web", v1.PullAlways, attempt))
				}
			}
			if len(r.fake.pulls) != 3 {
				t.Errorf("%d pulls for three starts, want three", len(r.fake.pulls))
			}
		})
	})
	t.Run("never refuses what is not there", func(t *testing.T) {
		inTime(t, nil, func(t *testing.T, r *rig) {
			res, ready := r.reached(want("u1", "web:1", v1.PullNever, 0))
			msg := `Container image "web:1" is not present with pull policy of Never`
			if ready || *res.Err != *newError("ErrImageNeverPull", msg) || res.RetryAt.IsZero() {
				t.Errorf("Ensure = %+v, %v", res, ready)
			}
			r.expect(t, `pod-u1/main Warning ErrImageNeverPull `+msg,
				`pod-u1/main Warning Failed Error: ErrImageNeverPull`)
			r.fake.set(func() { r.fake.images["web:1"] = &runtimeapi.Image{Id: "sha256:loaded"} })
			time.Sleep(time.Until(res.RetryAt))
			if res, ready := r.reached(want("u1", "web:1", v1.PullNever, 0)); !ready {
				t.Errorf("Ensure after the image was loaded = %+v", res)
			}
		})
	})
}

func TestInvalidName(t *testing.T) {
	parity.Proves(t, "LIFE-95")
	inTime(t, nil, func(t *testing.T, r *rig) {
		res, _ := r.reached(want("u1", "UPPER", v1.PullAlways, 0))
		msg := `Failed to apply default image tag "UPPER": couldn't parse image name "UPPER": invalid reference format: ` +
			`repository name (library/UPPER) must be lowercase`
		if *res.Err != *newError("InvalidImageName", msg) || !res.RetryAt.IsZero() {
			t.Errorf("Ensure = %+v, want an error for good", res)
		}
		r.expect(t, `pod-u1/main Warning InspectFailed `+msg, `pod-u1/main Warning Failed Error: InvalidImageName`)
		if res, ready := r.reached(want("u1", "web", v1.PullAlways, 0)); !ready || res.Ref != "sha256:web:latest" {
			t.Errorf("Ensure of a corrected name = %+v, %v; want the default tag pulled", res, ready)
		}
	})
}

func TestInspectError(t *testing.T) {
	parity.ProvesPart(t, 3, "LIFE-21")
	inTime(t, nil, func(t *testing.T, r *rig) {
		r.fake.broken = errors.New("disk on fire")
		res, _ := r.reached(want("u1", "web:1", v1.PullIfNotPresent, 0))
		if *res.Err != *newError("ImageInspectError", `Failed to inspect image "web:1": disk on fire`) {
			t.Errorf("Ensure = %+v", res)
		}
		r.fake.set(func() { r.fake.broken = nil })
		time.Sleep(time.Until(res.RetryAt))
		if _, ready := r.reached(want("u1", "web:1", v1.PullIfNotPresent, 0)); !ready {
			t.Error("not tried again")
		}
	})
}

func TestBackoff(t *testing.T) {
	parity.ProvesPart(t, 4, "LIFE-96")
	inTime(t, nil, func(t *testing.T, r *rig) {
		req := want("u1", "gone:1", v1.PullIfNotPresent, 0)
		for _, delay := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
			before := len(r.fake.pulls)
			res, _ := r.reached(req)
			failed := time.Now()
			if *res.Err != *newError("ErrImagePull", "no such image, or not for you") {
				t.Fatalf("Ensure after the pull = %+v", res)
			}
			r.expect(t,
				`pod-u1/main Normal Pulling Pulling image "gone:1"`,
				`pod-u1/main Warning Failed Failed to pull image "gone:1": no such image, or not for you`,
				`pod-u1/main Warning Failed Error: ErrImagePull`)
			time.Sleep(time.Until(res.RetryAt))
			for range 3 {
				if res, _ = r.reached(req); *res.Err != *newError("ImagePullBackOff",
					`Back-off pulling image "gone:1": ErrImagePull: no such image, or not for you`) {
					t.Fatalf("Ensure in the back-off = %+v", res)
				}
			}
			r.expect(t,
				`pod-u1/main Normal BackOff Back-off pulling image "gone:1"`,
				`pod-u1/main Warning Failed Error: ImagePullBackOff`)
			if d := res.RetryAt.Sub(failed).Round(time.Second); d != delay*time.Second {
				t.Errorf("back-off of %v, want %v", d, delay*time.Second)
			}
			if n := len(r.fake.pulls) - before; n != 1 {
				t.Errorf("%d pulls, want one", n)
			}
			time.Sleep(time.Until(res.RetryAt))
		}
	})
}

// TestRuntimeAway: a runtime that cannot be reached is tried again soon, without a back-off or repeated events. An
// unavailable registry begins a back-off.
func TestRuntimeAway(t *testing.T) {
	away := status.Error(codes.Unavailable, "no connection")
	failed := func(r *rig, req Request) (retried time.Duration) {
		t.Helper()
		res, ready := r.reached(req)
		if ready || res.Err.Reason != "ErrImagePull" && res.Err.Reason != "ImageInspectError" {
			t.Errorf("Ensure = %+v, %v; want an error", res, ready)
		}
		retried = time.Until(res.RetryAt).Round(time.Second)
		time.Sleep(time.Until(res.RetryAt))
		return retried
	}
	for _, policy := range []v1.PullPolicy{v1.PullAlways, v1.PullIfNotPresent} {
		t.Run(string(policy), func(t *testing.T) {
			inTime(t, nil, func(t *testing.T, r *rig) {
				r.fake.broken, r.fake.refused = away, away
				req := want("u1", "web:1", policy, 0)
				var events []string
				for i, pause := range []time.Duration{1, 2, 4, 8, 10, 10} {
					if got := failed(r, req); got != pause*time.Second {
						t.Errorf("tried again after %v, want %d s", got, pause)
					}
					now := r.events.Take()
					if i == 0 && len(now) == 0 || i > 0 && len(now) != 0 {
						t.Errorf("%d events of failure %d, want events of the first alone", len(now), i+1)
					}
					events = append(events, now...)
				}
				r.fake.set(func() { r.fake.broken, r.fake.refused = nil, nil })
				if res, ready := r.reached(req); !ready || len(r.backoffs) != 0 {
					t.Errorf("Ensure with a runtime = %+v, %v, and %d back-offs; want the image", res, ready, len(r.backoffs))
				}
				pulling := 0
				for _, e := range append(events, r.events.Take()...) {
					if strings.Contains(e, " Normal Pulling ") {
						pulling++
					}
				}
				if pulling != 1 {
					t.Errorf("%d events that the image is pulled, want one", pulling)
				}
			})
		})
	}
	t.Run("registry", func(t *testing.T) {
		inTime(t, nil, func(t *testing.T, r *rig) {
			r.fake.refused = away
			if res, _ := r.reached(want("u1", "web:1", v1.PullAlways, 0)); len(r.backoffs) != 1 {
				t.Errorf("Ensure = %+v, and %d back-offs; want one", res, len(r.backoffs))
			}
		})
	})
}

func TestBackoffSharedByContainersOfPod(t *testing.T) {
	parity.ProvesPart(t, 4, "LIFE-96")
	inTime(t, nil, func(t *testing.T, r *rig) {
		r.reached(want("u1", "gone:1", v1.PullIfNotPresent, 0))
		r.events.Take()
		other := want("u1", "gone:1", v1.PullIfNotPresent, 0)
		other.Container = "side"
		if res, _ := r.reached(other); res.Err.Reason != "ImagePullBackOff" || len(r.fake.pulls) != 1 {
			t.Errorf("Ensure = %+v after %d pulls, want the back-off of the pod's other container", res,
				len(r.fake.pulls))
		}
		if res, _ := r.reached(want("u2", "gone:1", v1.PullIfNotPresent, 0)); res.Err.Reason != "ErrImagePull" {
			t.Errorf("Ensure for another pod = %+v, want a pull of its own", res)
		}
	})
}

func TestParallelPulls(t *testing.T) {
	for _, tc := range []struct {
		parallel, most int
		took           time.Duration
	}{{1, 1, 8 * time.Second}, {4, 4, 2 * time.Second}, {0, 8, time.Second}} {
		t.Run(fmt.Sprintf("parallel=%d", tc.parallel), func(t *testing.T) {
			inTime(t, func(c *Config) { c.Parallel = tc.parallel }, func(t *testing.T, r *rig) {
				start := time.Now()
				var wg sync.WaitGroup
				for i := range 8 {
					r.fake.set(func() { r.fake.remote[fmt.Sprintf("i%d:1", i)] = "" })
					wg.Go(func() {
						req := want(fmt.Sprintf("u%d", i), fmt.Sprintf("i%d:1", i), v1.PullIfNotPresent, 0)
						for {
							if _, ready := r.Ensure(req); ready {
								return
							}
							time.Sleep(10 * time.Millisecond)
						}
					})
				}
				wg.Wait()
				if took := time.Since(start).Truncate(time.Second); r.fake.max != tc.most || took != tc.took {
					t.Errorf("at most %d pulls at a time, all in %v; want %d in %v", r.fake.max, took, tc.most, tc.took)
				}
			})
		})
	}
}

func TestRequestsShareImageStatusCall(t *testing.T) {
	inTime(t, nil, func(t *testing.T, r *rig) {
		r.fake.images["web:1"] = &runtimeapi.Image{Id: "sha256:here"}
		for i := range 50 {
			r.Ensure(want(fmt.Sprintf("u%d", i), "web:1", v1.PullIfNotPresent, 0))
		}
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		if r.fake.statuses > 2 || r.changed != 50 {
			t.Errorf("%d reads and %d wake-ups for 50 pods at once, want a shared read and 50", r.fake.statuses,
				r.changed)
		}
	})
}

func TestRemovedImageIsPulledAgain(t *testing.T) {
	inTime(t, nil, func(t *testing.T, r *rig) {
		req := want("u1", "web:1", v1.PullIfNotPresent, 0)
		r.reached(req)
		r.fake.set(func() { clear(r.fake.images) })
		time.Sleep(fresh)
		if res, ready := r.Ensure(req); ready || !res.Pulling {
			t.Errorf("Ensure = %+v, %v; want the image looked at again", res, ready)
		}
		r.reached(req)
		if len(r.fake.pulls) != 2 {
			t.Errorf("%d pulls, want the second one", len(r.fake.pulls))
		}
	})
}

func TestForgetCancelsPull(t *testing.T) {
	inTime(t, nil, func(t *testing.T, r *rig) {
		r.fake.latency = time.Hour
		r.Ensure(want("u1", "web:1", v1.PullIfNotPresent, 0))
		time.Sleep(time.Second)
		r.Forget("u1")
		synctest.Wait()
		if r.fake.now != 0 || r.changed != 0 || len(r.states) != 0 || len(r.backoffs) != 0 {
			t.Errorf("%d pulls, %d wake-ups, %d requests, %d back-offs left", r.fake.now, r.changed, len(r.states),
				len(r.backoffs))
		}
	})
}

func TestPullSecrets(t *testing.T) {
	parity.Proves(t, "LIFE-99")
	secrets := fakeSecrets{
		"wrong": {
			Type: v1.SecretTypeDockercfg,
			Data: map[string][]byte{v1.DockerConfigKey: []byte(
				`{"reg.example.com":{"username":"wrong","password":"x"}}`)},
		},
		"right": {
			Type: v1.SecretTypeDockerConfigJson,
			Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(
				`{"auths":{"reg.example.com":{"auth":"cmlnaHQ6cHc="}}}`)},
		}, // right:pw
		"other": {Type: v1.SecretTypeOpaque, Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(`nonsense`)}},
		"odd": {
			Type: v1.SecretTypeDockerConfigJson,
			Data: map[string][]byte{
				v1.DockerConfigJsonKey: []byte(
					`{"auths":{"reg.example.com":{"auth":"cmlnaHQ6cHc="},"reg.example.com:port":{"auth":"cmlnaHQ6cHc="}}}`),
			},
		},
		"bad": {
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "bad"},
			Type:       v1.SecretTypeDockerConfigJson,
			Data:       map[string][]byte{v1.DockerConfigJsonKey: []byte(`{"auths":secret`)},
		},
	}
	private := func(names ...string) Request {
		req := want("u1", "reg.example.com/a:1", v1.PullIfNotPresent, 0)
		for _, n := range names {
			req.Pod.Spec.ImagePullSecrets = append(req.Pod.Spec.ImagePullSecrets, v1.LocalObjectReference{Name: n})
		}
		return req
	}
	setup := func(c *Config) { c.Secrets = secrets }
	t.Run("tried in the pod's order until one opens", func(t *testing.T) {
		inTime(t, setup, func(t *testing.T, r *rig) {
			r.fake.remote["reg.example.com/a:1"] = "pw"
			if _, ready := r.reached(private("other", "wrong", "right")); !ready ||
				!slices.Equal(r.fake.pulls, []string{"wrong", "right"}) {
				t.Errorf("ready = %v with %v, want right after wrong", ready, r.fake.pulls)
			}
		})
	})
	t.Run("an invalid registry name does not affect others", func(t *testing.T) {
		inTime(t, setup, func(t *testing.T, r *rig) {
			r.fake.remote["reg.example.com/a:1"] = "pw"
			if res, ready := r.reached(private("odd")); !ready || !slices.Equal(r.fake.pulls, []string{"right"}) {
				t.Errorf("Ensure = %v, %v with %v", res.Err, ready, r.fake.pulls)
			}
		})
	})
	t.Run("a missing secret is reported, and the pull tried", func(t *testing.T) {
		inTime(t, setup, func(t *testing.T, r *rig) {
			r.fake.remote["reg.example.com/a:1"] = ""
			if _, ready := r.reached(private("none", "gone")); !ready {
				t.Error("the pull was not tried")
			}
			if got, want := r.events.Take()[1], "pod-u1 Warning FailedToRetrieveImagePullSecret Unable to retrieve some "+
				"image pull secrets (none, gone); attempting to pull the image may not succeed."; got != want {
				t.Errorf("event = %s, want %s", got, want)
			}
		})
	})
	t.Run("a missing secret is reported without a pull, too", func(t *testing.T) {
		for image, want := range map[string]string{
			"web:1":  `pod-u1/main Normal Pulled Container image "web:1" already present on machine`,
			"none:1": `pod-u1/main Warning ErrImageNeverPull Container image "none:1" is not present with pull policy of Never`,
		} {
			inTime(t, setup, func(t *testing.T, r *rig) {
				r.fake.images["web:1"] = &runtimeapi.Image{Id: "sha256:here"}
				req := private("right", "gone")
				req.Policy, req.Image = v1.PullNever, image
				r.reached(req)
				synctest.Wait()
				got := r.events.Take()
				missing := "pod-u1 Warning FailedToRetrieveImagePullSecret Unable to retrieve some image pull secrets (gone); " +
					"attempting to pull the image may not succeed."
				if len(got) < 2 || got[0] != want || got[len(got)-1] != missing {
					t.Errorf("events %q, want %q first and %q last", got, want, missing)
				}
				// Once per start: the image is inspected again, but the secrets are not read.
				time.Sleep(time.Minute)
				r.reached(req)
				synctest.Wait()
				if again := r.events.Take(); image == "web:1" && len(again) > 0 {
					t.Errorf("and then %q", again)
				}
			})
		}
	})
	t.Run("a broken secret is named and not quoted", func(t *testing.T) {
		inTime(t, setup, func(t *testing.T, r *rig) {
			res, _ := r.reached(private("bad"))
			if want := "read image pull secret ns/bad: invalid JSON at byte 10"; res.Err == nil ||
				res.Err.Message != want {
				t.Errorf("Ensure = %+v, want %s", res.Err, want)
			}
		})
	})
}
