package stats

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"keelson/test/kit/need"
)

// runs sets the processes of a cgroup.
func (g *ground) runs(path string, pids ...int) {
	var text string
	for _, pid := range pids {
		text += strconv.Itoa(pid) + "\n"
	}
	if g.groups.V2() {
		g.write("unified"+path+"/cgroup.procs", text)
		return
	}
	for controller := range g.groups.V1 {
		g.write(controller+path+"/cgroup.procs", text)
	}
}

// TestPodProcessMetrics checks that processes of a pod's containers are counted, and those of its sandbox are not.
func TestPodProcessMetrics(t *testing.T) {
	both(t, func(t *testing.T, v2 bool) {
		g := newGround(t, v2)
		g.runs(podDir+"/"+sandboxID, os.Getpid())
		g.runs(podDir+"/"+mainID, os.Getpid(), os.Getppid())
		s, err := New(g.cfg).Summary(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		if p := s.Pods[0].ProcessStats; p == nil || *p.ProcessCount != 2 {
			t.Errorf("processes %s", show(p))
		}
	})
}

// TestRootProcessMetrics checks the processes of the root cgroup. On cgroup v1 a process can be in the root of one
// hierarchy and in a cgroup of another; the hierarchy of the cpu controller counts. The limit on open files is that of
// process 1.
func TestRootProcessMetrics(t *testing.T) {
	other := exec.Command("sleep", "60")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := other.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = other.Wait() // killed
	})
	g := newGround(t, false)
	g.runs("/", other.Process.Pid, os.Getpid())
	g.write("memory/cgroup.procs", strconv.Itoa(other.Process.Pid)+"\n")
	g.runs("/kubepods", os.Getpid())
	text := expose(t, New(g.cfg).Containers())
	const root = `{container="",id="/",image="",name="",namespace="",pod=""`
	for want, there := range map[string]bool{
		"container_processes" + root + "} 2 ":                                                       true,
		"container_file_descriptors" + root + "} 0 ":                                                false,
		fmt.Sprintf(`container_ulimits_soft%s,ulimit="max_open_files"} %s `, root, softFiles(t, 1)): true,
		`container_ulimits_soft{container="",id="/kubepods",`:                                       false,
	} {
		if strings.Contains(text, want) != there {
			t.Errorf("%q is there: %v, want %v", want, !there, there)
		}
	}
}

// softFiles returns the soft limit of a process on open files, in the format of metrics.
func softFiles(t *testing.T, pid int) string {
	t.Helper()
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	if err != nil {
		need.Skip(t, "the limits of process 1 are not visible", err)
	}
	_, rest, _ := strings.Cut(string(limits), "Max open files")
	soft := strings.Fields(rest)[0]
	if soft == "unlimited" {
		soft = "-1"
	}
	n, err := strconv.ParseFloat(soft, 64)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.FormatFloat(n, 'g', -1, 64)
}
