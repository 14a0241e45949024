package script

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"keelson/test/kit/parity"
	"keelson/test/kit/placement"
	"keelson/test/kit/renames"
)

// TestStatesAreRenamedIntoPlace makes an agent write all its state files, and checks that each
// was renamed into place.
func TestStatesAreRenamedIntoPlace(t *testing.T) {
	parity.ProvesPart(t, 5, "RT-57")
	const config = `cpuManagerPolicy: static
reservedSystemCPUs: "0"
evictionHard: {memory.available: 100Mi}
shutdownGracePeriod: 30s
shutdownGracePeriodCriticalPods: 10s
memoryManagerPolicy: Static
kubeReserved: {memory: 1Gi}
reservedMemory: [{numaNode: 0, limits: {memory: 612Mi}}, {numaNode: 1, limits: {memory: 512Mi}}]
`
	const guaranteed = "spec: {containers: [{name: main, resources: {limits: {cpu: 1, memory: 100Mi, example.com/gpu: 1}}}]}\n"
	var files *renames.Watcher
	machine := func(w *World) {
		w.machine = &placement.Machine{Sockets: 2, Nodes: 1, Cores: 2, Threads: 1, Memory: 6144}
		files = renames.Watch(t, w.Path("kubelet"), filepath.Join(w.Path("kubelet"), "device-plugins"))
	}
	Settled(t, config, machine, func(t *testing.T, r *Run) {
		r.Scenario.Files["claim.yaml"] = "kind: ResourceClaim\nspec: {devices: {requests: [{name: one, exactly: {deviceClassName: gpu}}]}}\n"
		r.Must(t, "plugin", "example.com/gpu", "a", "b")
		r.Must(t, "driver", "gpu.example.com")
		r.Must(t, "put", "claim.yaml")
		r.Pod(
			t,
			"claims",
			"spec: {resourceClaims: [{name: c, resourceClaimName: claim}], containers: [{name: main, resources: {claims: [{name: c}]}}]}\n")
		r.Must(t, "reserve", "claim", "gpu.example.com", "claims")
		r.Must(t, "wait", "claims", "Ready")
		time.Sleep(2 * time.Second)
		r.Pod(t, "web", guaranteed)
		r.Must(t, "wait", "web", "Ready")
		time.Sleep(10 * time.Second)
		r.Must(t, "machine", "leaving")
		time.Sleep(time.Minute)
		got := files.Check(t)
		slices.Sort(got)
		want := []string{"actuated_pods_state", "allocated_pods_state", "cpu_manager_state", "dra_manager_state",
			"graceful_node_shutdown_state", "kubelet_internal_checkpoint", "memory_manager_state"}
		if !slices.Equal(got, want) {
			t.Errorf("there are %q, want %q", got, want)
		}
	})
}
