package cgroup

import (
	"os"
	"path/filepath"
	"testing"
)

func TestGroupOfAProcess(t *testing.T) {
	for _, c := range []struct {
		name, text, want string
		v2               bool
	}{
		{
			name: "v2",
			text: "0::/system.slice/kubelet.service\n",
			want: "/system.slice/kubelet.service",
			v2:   true,
		},
		{
			name: "v2, the root",
			text: "0::/\n",
			v2:   true,
		},
		{
			name: "v1",
			text: "7:cpu,cpuacct:/a\n6:memory:/a\n1:name=systemd:/b\n0::/c\n",
			want: "/a",
		},
		{
			name: "v1, CPU time and memory differ",
			text: "7:cpu,cpuacct:/a\n6:memory:/b\n",
		},
		{
			name: "v1, one is the root",
			text: "7:cpu,cpuacct:/\n6:memory:/b\n",
		},
		{
			name: "v1, the root",
			text: "7:cpu,cpuacct:/\n6:memory:/\n",
		},
		{
			name: "no such lines",
			text: "nonsense\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "cgroup")
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := groupOf(file, c.v2); got != c.want {
				t.Errorf("it is in %q, want %q", got, c.want)
			}
		})
	}
	if got := groupOf(filepath.Join(t.TempDir(), "missing"), true); got != "" {
		t.Errorf("a process that has exited is in %q", got)
	}
}
