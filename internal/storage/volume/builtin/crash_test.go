package builtin

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
	"keelson/internal/storage/volume"
	"keelson/test/kit/crash"
	"keelson/test/kit/eventlog"
)

func TestMain(m *testing.M) {
	crash.Main(m, map[string]func(string) error{"volumes of the node's own": victim})
}

// victim prepares the volumes of the reference pods, mounts the sub-paths, and releases everything.
func victim(root string) error {
	syscall.Umask(0o022)
	pods, err := referencePods()
	if err != nil {
		return err
	}
	changed := make(chan types.UID, 1000)
	m := newManager(root, referenceObjects(), &fakeTokens{life: time.Hour}, &eventlog.Log{},
		func(uid types.UID) { changed <- uid }, false, nil)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	for _, p := range pods {
		m.Want(p)
	}
	all := func(ok func(p *v1.Pod) bool) {
		for {
			n := 0
			for _, p := range pods {
				if ok(p) {
					n++
				}
			}
			if n == len(pods) {
				return
			}
			<-changed
		}
	}
	all(func(p *v1.Pod) bool { return m.State(p.UID).Ready })
	for _, p := range pods {
		for _, c := range pod.Containers(p) {
			if _, err := m.Mounts(ctx, p, c, nil); err != nil {
				return err
			}
		}
	}
	for _, p := range pods {
		m.Release(pod.RefOf(p))
	}
	all(func(p *v1.Pod) bool { done, _ := m.Released(p.UID); return done })
	for _, p := range pods {
		if err := m.RemoveDir(ctx, p.UID); err != nil {
			return err
		}
	}
	stop()
	return <-done
}

// The agent is killed at each change it makes while it prepares and releases. The next agent
// reaches the same state as without the crash.
func TestKilledAtAnyStep(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o022))
	n := newTestNode(t)
	n.stop()
	n.objects.maps, n.objects.secrets = referenceObjects().maps, referenceObjects().secrets
	pods, err := referencePods()
	if err != nil {
		t.Fatal(err)
	}
	died := crash.Run(t, crash.Scene{
		Work:  "volumes of the node's own",
		Dir:   n.root,
		Kills: 20,
		Check: func(i int, _ string) {
			n.start()
			defer n.stop()
			if i%2 == 0 {
				for _, p := range pods {
					n.ready(p)
				}
				for _, p := range pods {
					for _, c := range pod.Containers(p) {
						n.mounts(p, c)
					}
				}
				wantReference(t, n)
			}
			for _, p := range pods {
				n.release(p)
			}
			wantNothingLeft(t, n)
			for _, p := range pods {
				if err := n.RemoveDir(t.Context(), p.UID); err != nil {
					t.Error(err)
				}
				if _, err := os.Lstat(volume.PodDir(n.root, p.UID)); !os.IsNotExist(err) {
					t.Errorf("the directory of %s is left", p.Name)
				}
			}
		},
	})
	died.Want(t, "at its mount", "at its mkdir", "at its symlink", "at its rename", "at its create", "at its unlink",
		"at its umount", "at its chmod", "at its chown")
}
