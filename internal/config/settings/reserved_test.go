package settings

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"keelson/internal/host/cgroup"
	"keelson/test/kit/eventlog"
	"keelson/test/kit/parity"
)

// If the reservations are enforced, they limit the cgroups of the system and of Kubernetes: in CPU
// only if only compressible resources are enforced. A cgroup that does not exist is an error, so
// that the agent does not start.
func TestReservedCgroupsAreLimited(t *testing.T) {
	parity.ProvesPart(t, 3, "RES-17")
	const amounts = "systemReserved: {cpu: 500m, memory: 1Gi, pid: '1000'}\nkubeReserved: {cpu: 250m, memory: 512Mi}\n" +
		"systemReservedCgroup: /system\nkubeReservedCgroup: /kube/agents\n"
	for _, tc := range []struct {
		name, enforce string
		made          []string
		want          []string // files of both cgroups
		says          []string
		fails         string
	}{
		{name: "not enforced", enforce: "[pods]"},
		{name: "both", enforce: "[pods, system-reserved, kube-reserved]", made: []string{"system", "kube/agents"},
			want: []string{"kube/agents/cpu.shares 256", "kube/agents/memory.limit_in_bytes 536870912",
				"system/cpu.shares 512", "system/memory.limit_in_bytes 1073741824", "system/pids.max 1000"},
			says: []string{"Normal NodeAllocatableEnforced Updated limits on system reserved cgroup /system",
				"Normal NodeAllocatableEnforced Updated limits on kube reserved cgroup /kube/agents"}},
		{name: "CPU only", enforce: "[system-reserved-compressible, kube-reserved-compressible]", made: []string{"system", "kube/agents"},
			want: []string{"kube/agents/cpu.shares 256", "system/cpu.shares 512"},
			says: []string{"Normal NodeAllocatableEnforced Updated limits on system reserved cgroup /system",
				"Normal NodeAllocatableEnforced Updated limits on kube reserved cgroup /kube/agents"}},
		{name: "one that does not exist", enforce: "[system-reserved, kube-reserved]", made: []string{"system"},
			want: []string{"system/cpu.shares 512", "system/memory.limit_in_bytes 1073741824", "system/pids.max 1000"},
			says: []string{"Normal NodeAllocatableEnforced Updated limits on system reserved cgroup /system",
				"Warning FailedNodeAllocatableEnforcement Failed to enforce Kube Reserved Cgroup Limits on \"/kube/agents\": limit cgroup /kube/agents: it does not exist in every hierarchy"},
			fails: "enforce kube-reserved"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := cgroup.Hierarchies{V1: map[string]string{
				"cpu":    t.TempDir(),
				"memory": t.TempDir(),
				"pids":   t.TempDir(),
			}}
			tree, err := cgroup.New(cgroup.Config{Driver: cgroup.Cgroupfs, Hierarchies: h})
			if err != nil {
				t.Fatal(err)
			}
			for _, mount := range h.V1 {
				for _, dir := range tc.made {
					if err := os.MkdirAll(filepath.Join(mount, dir), 0o755); err != nil {
						t.Fatal(err)
					}
				}
			}
			var events eventlog.Log
			c := configured(t, amounts+"enforceNodeAllocatable: "+tc.enforce)
			for _, r := range Enforced(&c.Kubelet) {
				if err = r.Enforce(tree, &events); err != nil {
					break
				}
			}
			if (err != nil) != (tc.fails != "") || err != nil && !strings.Contains(err.Error(), tc.fails) {
				t.Errorf("%v, want %q", err, tc.fails)
			}
			var got []string
			for _, mount := range h.V1 {
				files, err := filepath.Glob(mount + "/*/*.*")
				deeper, err2 := filepath.Glob(mount + "/*/*/*.*")
				if err != nil || err2 != nil {
					t.Fatal(err, err2)
				}
				for _, f := range append(files, deeper...) {
					text, err := os.ReadFile(f)
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, fmt.Sprintf("%s %s", strings.TrimPrefix(f, mount+"/"), text))
				}
			}
			if slices.Sort(got); !slices.Equal(got, tc.want) {
				t.Errorf("written:\n%q, want\n%q", got, tc.want)
			}
			if logged := events.Texts(); !slices.Equal(logged, tc.says) {
				t.Errorf("logged:\n%q, want\n%q", logged, tc.says)
			}
		})
	}
}
