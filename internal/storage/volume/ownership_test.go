package volume

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"keelson/internal/storage/mount"
	"keelson/test/kit/eventlog"
	"keelson/test/kit/need"
	"keelson/test/kit/parity"
)

func sharingPod(gid *int64, policy *v1.PodFSGroupChangePolicy) *v1.Pod {
	p := testPod("u")
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: gid, FSGroupChangePolicy: policy}
	return p
}

func TestFSGroupChangePolicy(t *testing.T) {
	need.Root(t, "changing groups")
	s := Ownership{Guard: mount.NewGuard(), Events: &eventlog.Log{}}
	group := func(path string) string {
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%o:%d", st.Mode&0o7777, st.Gid)
	}
	always, mismatch := ptr.To(v1.FSGroupChangeAlways), ptr.To(v1.FSGroupChangeOnRootMismatch)
	gid, right := ptr.To[int64](3000), os.ModeSetgid|0o775
	for _, tc := range []struct {
		name   string
		gid    *int64
		policy *v1.PodFSGroupChangePolicy
		group  int // of the root
		mode   os.FileMode
		root   string
		inside string
	}{
		{"without a group nothing changes", nil, always, 0, 0o755, "755:0", "600:0"},
		{"without a policy all is changed", gid, nil, 3000, right, "2775:3000", "660:3000"},
		{"Always ignores the root", gid, always, 3000, right, "2775:3000", "660:3000"},
		{"OnRootMismatch trusts a root that matches", gid, mismatch, 3000, right, "2775:3000", "600:0"},
		{"a root without permissions for others", gid, mismatch, 3000, os.ModeSetgid | 0o770, "2770:3000", "600:0"},
		{"and changes all below one that does not", gid, mismatch, 0, 0o755, "2775:3000", "660:3000"},
		{"or is of another group", gid, mismatch, 3001, right, "2775:3000", "660:3000"},
		{"or does not hand its group on", gid, mismatch, 3000, 0o775, "2775:3000", "660:3000"},
		{"or does not let its group write", gid, mismatch, 3000, os.ModeSetgid | 0o755, "2775:3000", "660:3000"},
		{"or enter", gid, mismatch, 3000, os.ModeSetgid | 0o765, "2775:3000", "660:3000"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "v")
			inside := filepath.Join(dir, "f")
			for _, err := range []error{
				os.Mkdir(dir, 0o755),
				os.Chown(dir, 0, tc.group),
				os.Chmod(dir, tc.mode),
				os.WriteFile(inside, nil, 0o600),
				os.Chown(inside, 0, 0),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := s.SetFSGroup(t.Context(), sharingPod(tc.gid, tc.policy), dir, false); err != nil {
				t.Fatal(err)
			}
			if r, i := group(dir), group(inside); r != tc.root || i != tc.inside {
				t.Errorf("the root is %s, the file %s, want %s and %s", r, i, tc.root, tc.inside)
			}
		})
	}
	parity.Proves(t, "VOL-18")
}

func TestFSGroupProgressEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := &eventlog.Log{}
		s := Ownership{Guard: mount.NewGuard(), Events: events}
		var looked atomic.Int64
		ctx, stop := withProgressTimeout(t.Context(), attemptTimeout)
		defer stop()
		// Ten minutes, longer than an attempt may take without progress.
		err := s.report(ctx, testPod("u"), "/var/lib/kubelet/pods/u/volumes/v", func() error {
			time.Sleep(time.Second / 2) // so that events have different times
			for range 600 {
				time.Sleep(time.Second)
				looked.Add(100)
			}
			return ctx.Err()
		}, &looked)
		if err != nil {
			t.Errorf("a walk that goes on was ended: %v", err)
		}
		got := events.Texts()
		want := []string{
			"Warning VolumePermissionChangeInProgress Setting volume ownership for u/volumes/v " +
				"is taking longer than expected, consider using OnRootMismatch - " +
				"https://kubernetes.io/docs/tasks/configure-pod-container/security-context/" +
				"#configure-volume-permission-and-ownership-change-policy-for-pods",
			"Warning VolumePermissionChangeInProgress Setting volume ownership for u/volumes/v, processed 8900 files.",
			"Warning VolumePermissionChangeInProgress Setting volume ownership for u/volumes/v, processed 14900 files.",
		}
		if len(got) != 10 || !slices.Equal(got[:3], want) {
			t.Errorf("events are %q, want first %q", got, want)
		}

		// A fast walk records no event.
		before := len(got)
		if err := s.report(t.Context(), testPod("u"), "/v", func() error { time.Sleep(walkSlow - 1); return nil },
			&looked); err != nil || len(events.Texts()) != before {
			t.Errorf("a quick walk: %v, %q", err, events.Texts()[before:])
		}

		// A walk that hangs times out.
		ctx2, stop2 := withProgressTimeout(t.Context(), attemptTimeout)
		defer stop2()
		hang := make(chan struct{})
		began := time.Now()
		err = s.report(ctx2, testPod("u"), "/hung", func() error { <-hang; return nil }, &looked)
		if took := time.Since(began); err == nil || took > 2*attemptTimeout {
			t.Errorf("a walk that hangs: %v after %v", err, took)
		}
		close(hang)
	})
	parity.Proves(t, "VOL-19")
	parity.ProvesPart(t, 10, "VOL-10")
}

func TestAttemptTimeoutWithoutProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := withProgressTimeout(t.Context(), time.Minute)
		defer stop()
		for range 10 {
			time.Sleep(50 * time.Second)
			Alive(ctx)
		}
		if ctx.Err() != nil {
			t.Error("it ended although progress was reported")
		}
		began := time.Now()
		<-ctx.Done()
		if took := time.Since(began); took != time.Minute || context.Cause(ctx) != context.DeadlineExceeded {
			t.Errorf("it ended after %v for %v", took, context.Cause(ctx))
		}
		Alive(context.Background()) // a context without a deadline to extend
	})
}
