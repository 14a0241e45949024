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
	"keelson/test/kit/parity"
)

func sharingPod(gid *int64, policy *v1.PodFSGroupChangePolicy) *v1.Pod {
	p := testPod("u")
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: gid, FSGroupChangePolicy: policy}
	return p
}

func TestSharingFollowsThePolicy(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("changing groups needs root")
	}
	s := Sharing{Guard: mount.NewGuard(), Events: &recorder{}}
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
		{"so it is with Always, whatever the root", gid, always, 3000, right, "2775:3000", "660:3000"},
		{"OnRootMismatch trusts a root that matches", gid, mismatch, 3000, right, "2775:3000", "600:0"},
		{"also one that gives others nothing", gid, mismatch, 3000, os.ModeSetgid | 0o770, "2770:3000", "600:0"},
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
			if err := s.Lasting(t.Context(), sharingPod(tc.gid, tc.policy), dir, false); err != nil {
				t.Fatal(err)
			}
			if r, i := group(dir), group(inside); r != tc.root || i != tc.inside {
				t.Errorf("the root is %s, the file %s, want %s and %s", r, i, tc.root, tc.inside)
			}
		})
	}
	parity.Proves(t, "VOL-18")
}

func TestSharingTellsOfSlowWalks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := &recorder{}
		s := Sharing{Guard: mount.NewGuard(), Events: events}
		var looked atomic.Int64
		ctx, stop := withPatience(t.Context(), patience)
		defer stop()
		// Ten minutes, which is longer than any attempt may take in silence.
		err := s.give(ctx, testPod("u"), "/var/lib/kubelet/pods/u/volumes/v", func() error {
			time.Sleep(time.Second / 2) // so that nothing happens at the same time
			for range 600 {
				time.Sleep(time.Second)
				looked.Add(100)
			}
			return ctx.Err()
		}, &looked)
		if err != nil {
			t.Errorf("a walk that goes on was ended: %v", err)
		}
		got := events.all()
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

		// A quick one is not worth a word.
		before := len(got)
		if err := s.give(t.Context(), testPod("u"), "/v", func() error { time.Sleep(walkSlow - 1); return nil }, &looked); err != nil || len(events.all()) != before {
			t.Errorf("a quick walk: %v, %q", err, events.all()[before:])
		}

		// One that hangs is given up like everything else that does.
		ctx2, stop2 := withPatience(t.Context(), patience)
		defer stop2()
		hang := make(chan struct{})
		began := time.Now()
		err = s.give(ctx2, testPod("u"), "/hung", func() error { <-hang; return nil }, &looked)
		if took := time.Since(began); err == nil || took > 2*patience {
			t.Errorf("a walk that hangs: %v after %v", err, took)
		}
		close(hang)
	})
	parity.Proves(t, "VOL-19")
	parity.ProvesPart(t, 10, "VOL-10")
}

func TestPatienceEndsWithoutNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := withPatience(t.Context(), time.Minute)
		defer stop()
		for range 10 {
			time.Sleep(50 * time.Second)
			Alive(ctx)
		}
		if ctx.Err() != nil {
			t.Error("it ended in spite of the news")
		}
		began := time.Now()
		<-ctx.Done()
		if took := time.Since(began); took != time.Minute || context.Cause(ctx) != context.DeadlineExceeded {
			t.Errorf("it ended after %v for %v", took, context.Cause(ctx))
		}
		Alive(context.Background()) // of somebody who has no patience
	})
}
