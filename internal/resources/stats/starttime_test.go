package stats

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// made sets the creation time of a cgroup and of each of its files.
func (g *ground) made(path string, at time.Time) {
	g.t.Helper()
	for _, mount := range g.mounts() {
		dir := filepath.Join(mount, path)
		entries, err := os.ReadDir(dir)
		if err != nil {
			g.t.Fatal(err)
		}
		for _, e := range entries {
			if !e.IsDir() {
				g.touch(filepath.Join(dir, e.Name()), at)
			}
		}
		g.touch(dir, at)
	}
}

func (g *ground) touch(path string, at time.Time) {
	g.t.Helper()
	if err := os.Chtimes(path, at, at); err != nil {
		g.t.Fatal(err)
	}
}

func (g *ground) mounts() (out []string) {
	if g.groups.V2() {
		return []string{g.groups.Unified}
	}
	for _, mount := range g.groups.V1 {
		out = append(out, mount)
	}
	return out
}

// TestStartTimes checks the start time of a cgroup: the earliest time of its directories and files. If the kernel has
// lost that time, it is the time at which the runtime started the container or sandbox.
func TestStartTimes(t *testing.T) {
	both(t, func(t *testing.T, v2 bool) {
		now := time.Now().Truncate(time.Second)
		g := newGround(t, v2)
		p := g.pod()
		p.Have.Sandboxes[0].CreatedAt = now.Add(-62 * time.Second)
		p.Have.Containers[0].StartedAt = now.Add(-500 * time.Second)
		g.cfg.Pods = func() []Pod { return []Pod{p} }
		for path, ago := range map[string]int{
			"/":                      2000,
			"/kubepods":              400,
			podDir:                   70,
			podDir + "/" + sandboxID: 61,
			podDir + "/" + mainID:    3,
		} {
			g.made(path, now.Add(-time.Duration(ago)*time.Second))
		}
		// One file of the cgroup is older than the others.
		first := filepath.Join(g.dir, "cpu/kubepods/burstable")
		if v2 {
			first = filepath.Join(g.dir, "unified/kubepods/burstable")
		}
		g.made("/kubepods/burstable", now.Add(-300*time.Second))
		oldest := map[bool]string{true: "cgroup.events", false: "cgroup.clone_children"}[v2]
		g.write(strings.TrimPrefix(first, g.dir+"/")+"/"+oldest, "")
		g.touch(filepath.Join(first, oldest), now.Add(-310*time.Second))
		boot := now.Add(-1000 * time.Second).Truncate(time.Minute)
		up := now.Sub(boot) - 30*time.Second // within the minute of the boot
		g.cfg.Host.(fstest.MapFS)["proc/uptime"] = &fstest.MapFile{Data: fmt.Appendf(nil, "%.2f 1.00\n", up.Seconds())}
		text := expose(t, New(g.cfg).Containers())
		for id, want := range map[string]time.Time{
			"/":                      boot,
			"/kubepods":              now.Add(-400 * time.Second),
			"/kubepods/burstable":    now.Add(-310 * time.Second),
			podDir:                   now.Add(-70 * time.Second),
			podDir + "/" + sandboxID: now.Add(-61 * time.Second),
			podDir + "/" + mainID:    now.Add(-500 * time.Second),
		} {
			if got := startOfGroup(t, text, id); got != want.Unix() {
				t.Errorf("%s started at %d, want %d", id, got, want.Unix())
			}
		}
	})
}

// startOfGroup returns the value of container_start_time_seconds of a cgroup.
func startOfGroup(t *testing.T, text, id string) int64 {
	t.Helper()
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "container_start_time_seconds{") && strings.Contains(line, `id="`+id+`"`) {
			seconds, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
			if err != nil {
				t.Fatal(err)
			}
			return int64(seconds)
		}
	}
	t.Fatalf("no start of %s", id)
	return 0
}
