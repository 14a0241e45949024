package image

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/test/kit/parity"
)

func wantVolume(uid, image string, policy v1.PullPolicy) Request {
	req := want(uid, image, policy, 0)
	req.Container, req.Volume = "", "data"
	return req
}

func TestFetchWaitsForTheImage(t *testing.T) {
	parity.ProvesPart(t, 3, "VOL-54")
	inTime(t, nil, func(t *testing.T, r *rig) {
		start := time.Now()
		if ref, err := r.Fetch(t.Context(), wantVolume("u1", "web:1", v1.PullIfNotPresent)); err != nil ||
			ref != "sha256:web:1" {
			t.Errorf("Fetch = %q, %v", ref, err)
		}
		if took := time.Since(start).Truncate(time.Second); took != time.Second {
			t.Errorf("Fetch took %v, want as long as the pull", took)
		}
		r.expect(
			t,
			`pod-u1 Normal Pulling Pulling image "web:1"`,
			`pod-u1 Normal Pulled Successfully pulled image "web:1" in 1s (1.001s including waiting). Image size: 42 bytes.`)
	})
}

func TestFetchWaitsForBackoff(t *testing.T) {
	inTime(t, nil, func(t *testing.T, r *rig) {
		go func() {
			time.Sleep(15 * time.Second)
			r.fake.set(func() { r.fake.remote["late:1"] = "" })
		}()
		if ref, err := r.Fetch(t.Context(), wantVolume("u1", "late:1", v1.PullIfNotPresent)); err != nil ||
			ref != "sha256:late:1" {
			t.Errorf("Fetch = %q, %v", ref, err)
		}
		// Failed pulls at 0 and 11 s; the third pull waits for a back-off of 20 s.
		if len(r.fake.pulls) != 3 {
			t.Errorf("%d pulls, want three", len(r.fake.pulls))
		}
	})
}

func TestFetchFails(t *testing.T) {
	t.Run("when its time is up, with what stood in the way", func(t *testing.T) {
		inTime(t, nil, func(t *testing.T, r *rig) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := r.Fetch(ctx, wantVolume("u1", "gone:1", v1.PullIfNotPresent))
			var shown *Error
			if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &shown) ||
				shown.Reason != "ImagePullBackOff" {
				t.Errorf("Fetch = %v", err)
			}
		})
	})
	t.Run("at once on a name that is none", func(t *testing.T) {
		inTime(t, nil, func(t *testing.T, r *rig) {
			_, err := r.Fetch(t.Context(), wantVolume("u1", "UPPER", v1.PullAlways))
			var shown *Error
			if !errors.As(err, &shown) || shown.Reason != "InvalidImageName" {
				t.Errorf("Fetch = %v", err)
			}
		})
	})
	for name, end := range map[string]func(r *rig){
		"when the pod is removed": func(r *rig) { r.Forget("u1") },
		"when the agent ends":     func(r *rig) { r.stop() },
	} {
		for phase, after := range map[string]time.Duration{
			"pull":     100 * time.Millisecond,
			"back-off": 5 * time.Second,
		} {
			t.Run(name+" during a "+phase, func(t *testing.T) {
				inTime(t, nil, func(t *testing.T, r *rig) {
					got := make(chan error, 1)
					go func() {
						_, err := r.Fetch(t.Context(), wantVolume("u1", "gone:1", v1.PullIfNotPresent))
						got <- err
					}()
					time.Sleep(after)
					end(r)
					time.Sleep(BackoffMax)
					synctest.Wait()
					select {
					case err := <-got:
						if !errors.Is(err, errDropped) {
							t.Errorf("Fetch = %v", err)
						}
					default:
						t.Error("Fetch waits for nothing")
					}
					if len(r.fake.pulls) != 1 {
						t.Errorf("%d pulls, want the first one only", len(r.fake.pulls))
					}
				})
			})
		}
	}
}

func TestVolumeAndContainerRequestsAreSeparate(t *testing.T) {
	inTime(t, nil, func(t *testing.T, r *rig) {
		req := want("u1", "web:1", v1.PullIfNotPresent, 0)
		r.reached(req)
		r.fake.set(func() { r.fake.remote["data:1"] = "" })
		vol := wantVolume("u1", "data:1", v1.PullIfNotPresent)
		vol.Volume = req.Container // the same name, but another request
		if res, _ := r.reached(vol); res.Ref != "sha256:data:1" {
			t.Errorf("volume: %+v", res)
		}
		if res, ready := r.Ensure(req); !ready || res.Ref != "sha256:web:1" {
			t.Errorf("container: %+v, %v", res, ready)
		}
	})
}
