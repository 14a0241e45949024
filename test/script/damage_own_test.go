package script

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"keelson/test/kit/parity"
)

const (
	// ownConfig gives containers exclusive CPUs and the memory of NUMA nodes.
	ownConfig = `cpuManagerPolicy: static
kubeReserved: {cpu: "1", memory: 1Gi}
evictionHard: {memory.available: 100Mi}
memoryManagerPolicy: Static
reservedMemory: [{numaNode: 0, limits: {memory: 612Mi}}, {numaNode: 1, limits: {memory: 512Mi}}]
topologyManagerPolicy: restricted
`
	ownMachine = "sockets=2 cores=2 threads=1 memory=6144"
	ownPod     = "spec: {containers: [{name: main, resources: {limits: {cpu: 1, memory: 1Gi}}}]}\n"
)

// TestDamagedStatesOfWhatIsOnesOwn damages the state files of the CPU manager and the memory
// manager. The next agent takes over the CPUs and the memory that running containers have, and
// allocates none of them to other containers.
func TestDamagedStatesOfWhatIsOnesOwn(t *testing.T) {
	parity.Differs(t, "RT-56", "0101")
	var on Scenario
	if err := on.setMachine(ownMachine); err != nil {
		t.Fatal(err)
	}
	ways := map[string]func(path string, content []byte) error{
		"of another policy": func(path string, content []byte) error {
			return os.WriteFile(path,
				[]byte(strings.NewReplacer(`"static"`, `"none"`, `"Static"`, `"None"`).Replace(string(content))), 0o600)
		},
	}
	for name, damage := range damages {
		ways[name] = damage
	}
	for _, files := range []string{"cpu_manager_state", "memory_manager_state",
		"cpu_manager_state memory_manager_state"} {
		for name, damage := range ways {
			t.Run(files+" "+name, func(t *testing.T) {
				Settled(t, ownConfig, func(w *World) { w.machine = on.Machine },
					func(t *testing.T, r *Run) { r.damagedOwn(t, strings.Fields(files), damage) })
			})
		}
	}
}

func (r *Run) damagedOwn(t *testing.T, files []string, damage func(string, []byte) error) {
	// The CPU and the memory of a are not those that it would get from a new allocation.
	for _, name := range []string{"first", "second", "a"} {
		r.Pod(t, name, ownPod)
		r.Must(t, "wait", name, "Ready")
	}
	for _, name := range []string{"first", "second"} {
		r.Must(t, "delete", name)
		r.Must(t, "wait", name, "gone")
	}
	r.Pod(t, "shares", PlainPod)
	r.Must(t, "wait", "shares", "Ready")
	r.Stop()
	for _, file := range files {
		path := r.Path("kubelet/" + file)
		content, err := os.ReadFile(path)
		if err == nil {
			err = damage(path, content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	before, reported := r.Must(t, "cpus"), len(r.nodeEvents())
	r.Start()
	time.Sleep(9 * time.Second)
	if !slices.ContainsFunc(r.NodeObject().Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue &&
			time.Since(c.LastHeartbeatTime.Time) < 10*time.Second
	}) {
		t.Errorf("the node is not Ready: %v", r.NodeObject().Status.Conditions)
	}
	time.Sleep(time.Minute)
	if now := r.Must(t, "cpus"); now != before {
		t.Errorf("containers run by\n%sbefore\n%s", now, before)
	}
	for _, p := range []string{"a", "shares"} {
		if now := r.Server.Pod(Namespace, p); !isReady(now) || now.Status.ContainerStatuses[0].RestartCount > 0 {
			t.Errorf("pod %s: %s", p, brief(now))
		}
	}
	now := r.nodeEvents()[reported:]
	if len(now) != len(files) {
		t.Errorf("reported: %v", now)
	}
	for _, file := range files {
		path := r.Path("kubelet/" + file)
		if kept, err := filepath.Glob(path + "*.bad"); err != nil || len(kept) != 1 {
			t.Errorf("kept of %s: %v, %v", file, kept, err)
		}
		if !slices.ContainsFunc(now, func(s string) bool {
			return strings.Contains(s, "StateFileUnusable use "+path+": ") && !strings.Contains(s, "drain")
		}) {
			t.Errorf("reported for %s: %v", file, now)
		}
	}
	// Three more pods request one CPU each; two CPUs are free.
	for _, x := range [][2]string{{"b", "Ready"}, {"c", "Ready"}, {"d", "Failed"}} {
		r.Pod(t, x[0], ownPod)
		r.Must(t, "wait", x[0], x[1])
	}
}
