package script

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"keelson/internal/host/cgroup"
	"keelson/test/kit/parity"
)

// reported are the messages of events about the node with that reason.
func (w *World) reported(reason string) []string {
	var out []string
	for _, o := range w.Server.Objects(corev1.SchemeGroupVersion.WithResource("events")) {
		if e := o.(*corev1.Event); e.InvolvedObject.Kind == "Node" && e.Reason == reason {
			out = append(out, e.Message)
		}
	}
	return out
}

func TestTheHostsResolverIsCheckedOnce(t *testing.T) {
	parity.ProvesPart(t, 2, "LIFE-78")
	file := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(file, []byte("search "+strings.Repeat("a ", 30)), 0o644); err != nil {
		t.Fatal(err)
	}
	Settled(t, "", func(w *World) { w.Flags = append(w.Flags, "--resolv-conf="+file) }, func(t *testing.T, r *Run) {
		r.Pod(t, "app", PlainPod)
		time.Sleep(10 * time.Minute)
		want := []string{"Resolv.conf file '" + file + "' contains search line consisting of more than 29 domains!"}
		if got := r.reported("CheckLimitsForResolvConf"); !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
	})
}

// TestCgroupVersionIsReported: an event reports cgroup v1 once per start, with and without cgroups of pods.
func TestCgroupVersionIsReported(t *testing.T) {
	parity.ProvesPart(t, 2, "NODE-24")
	groups, err := cgroup.Detect()
	if err != nil {
		t.Fatal(err)
	}
	Settled(t, "cgroupsPerQOS: false\n", nil, func(t *testing.T, r *Run) {
		time.Sleep(10 * time.Minute)
		want := 1
		if groups.V2() {
			want = 0
		}
		if got := r.reported("CgroupV1"); len(got) != want {
			t.Errorf("reported %q, want %d", got, want)
		}
	})
}

func TestMoreEndedInstancesAreKeptWhereAFlagSaysSo(t *testing.T) {
	parity.Differs(t, "RT-28", "0060")
	parity.ProvesPart(t, 2, "RT-30")
	const each, all = "--maximum-dead-containers-per-container=", "--maximum-dead-containers="
	const age = "--minimum-container-ttl-duration="
	for flags, want := range map[string][]uint32{
		"":                                    {4},
		each + "3":                            {2, 3, 4},
		each + "1":                            {4},
		each + "0":                            {4},
		each + "-1":                           {4},
		all + "0":                             {4}, // these two have no effect
		age + "1h":                            {4},
		each + "2 " + all + "1 " + age + "1h": {3, 4},
	} {
		Settled(t, "", func(w *World) { w.Flags = append(w.Flags, strings.Fields(flags)...) },
			func(t *testing.T, r *Run) {
				r.Pod(t, "crash", "spec: {containers: [{name: main, command: [sh, -c, 'exit 1']}]}\n")
				time.Sleep(2 * time.Minute) // five instances, the last of which waits
				var got []uint32
				for _, c := range r.Runtime.Pods()[0].Containers {
					got = append(got, c.Status.Metadata.Attempt)
				}
				if !slices.Equal(got, want) {
					t.Errorf("with %s: instances %v are kept, want %v", flags, got, want)
				}
				r.Must(t, "delete", "crash", "force")
				r.Must(t, "wait", "crash", "gone")
				time.Sleep(time.Minute)
				if left := r.Must(t, "left"); left != "nothing\n" {
					t.Errorf("with %s there is left of a pod that is gone: %s", flags, left)
				}
			})
	}
}

// A runtime whose lists fail makes the node not ready. The node is ready when the lists
// succeed again.
func TestARuntimeThatDoesNotList(t *testing.T) {
	parity.Differs(t, "RT-22", "0061")
	parity.ProvesPart(t, 4, "NODE-23")
	Settled(t, "", nil, func(t *testing.T, r *Run) {
		r.Pod(t, "app", PlainPod)
		r.Must(t, "wait", "app", "Ready")
		r.Must(t, "fault", "stuck", "ListContainers", "hang")
		time.Sleep(2 * time.Minute) // there is a minute between lists while there are events
		if c := r.NodeReady(); c.Status != corev1.ConditionTrue {
			t.Errorf("after two minutes the node is %s: %s", c.Status, c.Message)
		}
		time.Sleep(90 * time.Second)
		if c := r.NodeReady(); c.Status != corev1.ConditionFalse ||
			!strings.Contains(c.Message, "PLEG is not healthy: pleg was last seen active 3m") {
			t.Errorf("later it is %s: %s", c.Status, c.Message)
		}
		r.Must(t, "release", "stuck")
		time.Sleep(90 * time.Second)
		if c := r.NodeReady(); c.Status != corev1.ConditionTrue {
			t.Errorf("with a runtime that lists again the node is %s: %s", c.Status, c.Message)
		}
	})
}

// Plugins are not registered and a shutdown is not delayed while the runtime has never reported that it is ready.
func TestWhatWaitsForARuntimeThatIsWell(t *testing.T) {
	parity.Differs(t, "RT-04", "0035")
	unwell := func(w *World) { w.Runtime.SetCondition("RuntimeReady", false, "starting", "") }
	Settled(t, "shutdownGracePeriod: 30s\n", unwell, func(t *testing.T, r *Run) {
		r.Must(t, "driver", "gpu.example.com")
		driver, err := r.drivers.named("gpu.example.com")
		if err != nil {
			t.Fatal(err)
		}
		begun := func() (registered, locked int) {
			r.login.mu.Lock()
			defer r.login.mu.Unlock()
			return len(driver.Registrations()), r.login.locks
		}
		time.Sleep(5 * time.Minute)
		if registered, locked := begun(); registered != 0 || locked != 0 {
			t.Errorf("beside a runtime that is not well: registered %d times, %d locks", registered, locked)
		}
		r.Runtime.SetCondition("RuntimeReady", true, "", "")
		time.Sleep(30 * time.Second)
		if registered, locked := begun(); registered != 1 || locked != 1 {
			t.Errorf("beside a runtime that is well: registered %d times, %d locks", registered, locked)
		}
	})
}
