package script

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"keelson/test/kit/apiproxy"
	"keelson/test/kit/need"
)

// Settled runs a story on a node with a configuration of its own, in virtual time. The story
// begins a few seconds after the start of the agent.
func Settled(t *testing.T, configuration string, edit func(*World), story func(t *testing.T, r *Run)) {
	t.Helper()
	dir := NodeDir(t)
	var log string
	defer func() {
		if t.Failed() {
			t.Logf("the agent's log:\n%s", log)
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		w := NewWorld(t, dir, configuration, false)
		if edit != nil {
			edit(w)
		}
		defer func() {
			log = w.Log.String()
			w.Close()
		}()
		w.Start()
		r := &Run{World: w, Scenario: &Scenario{Files: map[string]string{}}, faults: map[string]fault{}}
		time.Sleep(5 * time.Second)
		story(t, r)
	})
}

// Pod creates a pod from a manifest that may lack apiVersion, kind and metadata.
func (r *Run) Pod(t *testing.T, name, spec string) {
	t.Helper()
	r.Scenario.Files[name+".yaml"] = spec
	r.Must(t, "apply", name+".yaml")
}

func (r *Run) Must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := r.do(step{args: args})
	if err != nil {
		t.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
	return out
}

const PlainPod = "spec: {containers: [{name: main}]}\n"

// NodeObject is the node object; nil if there is none.
func (w *World) NodeObject() *corev1.Node { return w.Server.Node(Node) }

// Asked are the requests to the API server with this verb and resource.
func (w *World) Asked(verb, resource string) []apiproxy.Request {
	var out []apiproxy.Request
	for _, q := range w.Proxy.Requests() {
		if q.Verb == verb && q.Resource == resource {
			out = append(out, q)
		}
	}
	return out
}

// StartFails starts an agent that should end by itself, and returns its error; nil if it continues to run.
func (w *World) StartFails() error {
	w.Start()
	a := w.agent
	select {
	case <-a.done:
	case <-time.After(time.Minute):
		return nil
	}
	w.agent = nil
	a.link.cut()
	return a.err
}

// NodeReady is the Ready condition of the node object; zero if there is none.
func (w *World) NodeReady() corev1.NodeCondition {
	for _, c := range w.NodeObject().Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c
		}
	}
	return corev1.NodeCondition{}
}

// NodeDir is a directory for one node. The agent may make mounts below it.
func NodeDir(t *testing.T) string {
	need.Root(t, "mounting")
	dir, err := os.MkdirTemp("", "keelson-script-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
		if err != nil {
			t.Error(err)
		}
		for i := len(mounts) - 1; i >= 0; i-- {
			if err := unix.Unmount(mounts[i].Mountpoint, unix.MNT_DETACH); err != nil {
				t.Errorf("unmount %s: %v", mounts[i].Mountpoint, err)
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
