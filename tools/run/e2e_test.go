//go:build e2e

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"

	"keelson/test/kit/need"
	"keelson/test/rig"
)

// TestRun does what a new user does: looks at the pods, edits a manifest, makes it invalid, and ends the command.
func TestRun(t *testing.T) {
	for _, source := range []string{"debian", "built"} {
		t.Run(source, func(t *testing.T) {
			c := begin(t, source)
			c.until(`^web-keelson +10\.\d+\.\d+\.\d+ +2/2 ready +0 `)
			c.until(`hello from keelson`)
			c.until(`last line of the log of its container web`)
			c.until(`GET / from`)
			c.until(`Ctrl-C`)
			traces := c.traces()
			if len(traces) < 8 {
				t.Errorf("found only %q: what is gone in the end was not looked for well", traces)
			}

			c.edit("web.yaml", "hello from keelson", "hello once more")
			edited := time.Now()
			c.until(`web-keelson is replaced`)
			ip := c.until(`web-keelson is Ready at (\S+),`)[1]
			t.Logf("edit→Ready %.1f s", time.Since(edited).Seconds())
			if got := ask(t, ip); !strings.Contains(got, "hello once more") {
				t.Errorf("the new pod answers %q", got)
			}

			c.edit("web.yaml", "restartPolicy: Always", "restartPolicy: Sometimes")
			logged := c.until(`invalid manifest.*`)[0]
			if !strings.Contains(logged, filepath.Join(c.examples, "web.yaml")) ||
				!strings.Contains(logged, "Sometimes") {
				t.Errorf("an invalid manifest is reported as %q; want the user's file and the value", logged)
			}
			if got := ask(t, ip); !strings.Contains(got, "hello once more") {
				t.Errorf("with an invalid manifest the pod answers %q", got)
			}

			c.signal(syscall.SIGINT)
			c.until(`web-keelson has stopped`)
			if err := c.wait(); err != nil {
				t.Errorf("the command ended with %v, want success", err)
			}
			c.nothingLeft(traces)
		})
	}
}

// TestCleanAfterCrash kills the command, the kubelet or containerd, and checks that clean removes everything.
func TestCleanAfterCrash(t *testing.T) {
	for _, kill := range [][]string{{"run"}, {"kubelet"}, {"containerd"}, {"run", "kubelet", "containerd"}} {
		t.Run(strings.Join(kill, "+"), func(t *testing.T) {
			c := begin(t, "debian")
			c.until(`Ctrl-C`)
			traces := c.traces()
			pids := c.pids()
			pids["run"] = c.cmd.Process.Pid
			for _, name := range kill {
				if err := syscall.Kill(pids[name], syscall.SIGKILL); err != nil {
					t.Fatalf("kill %s: %v", name, err)
				}
			}
			if kill[0] != "run" {
				c.until(kill[0] + ` ended by itself`)
				c.until(`all logs: (\S+),`)
			}
			if err := c.wait(); err == nil {
				t.Error("the command ended with success")
			}
			out, err := c.clean()
			if err != nil {
				t.Fatalf("clean: %v\n%s", err, out)
			}
			c.nothingLeft(traces)
			// It is not an error if there is nothing to remove.
			if out, err := c.clean(); err != nil {
				t.Errorf("clean once more: %v\n%s", err, out)
			}
		})
	}
}

// built compiles the programs once.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "keelson-run-")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-trimpath", "-o", dir+"/", "../../cmd/kubelet", ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("compile: %w\n%s", err, out)
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, _ := built(); dir != "" { // the tests have reported its failure
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// command is a running `run up`.
type command struct {
	t        *testing.T
	cmd      *exec.Cmd
	examples string
	logs     string // of a failed run; not the default folder, which may have logs of the user
	dir      string // the private folder
	lines    chan string
	ended    chan error
}

func begin(t *testing.T, source string) *command {
	t.Helper()
	need.Root(t, "running containers")
	bin, err := built()
	if err != nil {
		t.Fatal(err)
	}
	c := &command{
		t:        t,
		examples: t.TempDir(),
		logs:     filepath.Join(t.TempDir(), "logs"),
		lines:    make(chan string, 1000),
		ended:    make(chan error, 1),
	}
	if err := os.CopyFS(c.examples, os.DirFS(filepath.Join(checkout(t), "examples"))); err != nil {
		t.Fatal(err)
	}
	c.cmd = exec.Command(filepath.Join(bin, "run"), "-examples", c.examples, "-runtime", source, "-logs", c.logs, "up")
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c.cmd.Stdout, c.cmd.Stderr = w, w
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	go func() { c.ended <- c.cmd.Wait() }()
	go func() {
		defer close(c.lines)
		for s := bufio.NewScanner(r); s.Scan(); {
			fmt.Fprintln(t.Output(), s.Text())
			c.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		c.signal(syscall.SIGTERM)
		for range c.lines { // until no process writes any more
		}
		r.Close()
		// A failed test may have left something behind on purpose.
		if out, err := c.clean(); err != nil {
			t.Errorf("clean: %v\n%s", err, out)
		}
	})
	c.dir = c.until(`everything lies in (\S+)`)[1]
	return c
}

// patient bounds every wait of these tests.
const patient = 5 * time.Minute

// until reads lines up to one that matches.
func (c *command) until(pattern string) []string {
	c.t.Helper()
	re := regexp.MustCompile(pattern)
	timeout := time.NewTimer(patient)
	defer timeout.Stop()
	for {
		select {
		case line, ok := <-c.lines:
			if m := re.FindStringSubmatch(line); m != nil {
				return m
			}
			if !ok {
				c.t.Fatalf("the command ended before it logged %q", pattern)
			}
		case <-timeout.C:
			c.t.Fatalf("nothing like %q was printed within %v", pattern, patient)
		}
	}
}

func (c *command) wait() error {
	c.t.Helper()
	select {
	case err := <-c.ended:
		c.ended <- err
		return err
	case <-time.After(patient):
		c.t.Fatal("the command does not end")
	}
	return nil
}

// clean runs the command that removes what crashed runs left.
func (c *command) clean() ([]byte, error) {
	return exec.Command(c.cmd.Path, "-logs", c.logs, "clean").CombinedOutput()
}

func (c *command) signal(s syscall.Signal) {
	select {
	case err := <-c.ended:
		c.ended <- err
	default:
		if err := c.cmd.Process.Signal(s); err != nil {
			c.t.Log(err) // it ended this moment
		}
	}
}

// edit changes a manifest as an editor does.
func (c *command) edit(name, old, new string) {
	c.t.Helper()
	file := filepath.Join(c.examples, name)
	text := strings.Replace(read(c.t, file), old, new, 1)
	if !strings.Contains(text, new) {
		c.t.Fatalf("%s does not contain %q", file, old)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		c.t.Fatal(err)
	}
}

func ask(t *testing.T, ip string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+ip+":8080/", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// pids reads the process IDs of the programs from the ledger.
func (c *command) pids() map[string]int {
	c.t.Helper()
	var page struct {
		Processes []struct {
			Name string
			Pid  int
		}
	}
	if err := json.Unmarshal([]byte(read(c.t, filepath.Join(c.dir, "rig.json"))), &page); err != nil {
		c.t.Fatal(err)
	}
	out := map[string]int{}
	for _, p := range page.Processes {
		out[p.Name] = p.Pid
	}
	return out
}

// traces lists what the command has made on this machine: processes, mounts,
// cgroups, interfaces, rules, files.
func (c *command) traces() []string {
	c.t.Helper()
	name := filepath.Base(c.dir) // of the folder, the cgroup and the network
	out := c.processes()
	for _, f := range globs(c.t, c.dir, c.logs, "/var/lib/cni/results/"+name+"-*", "/var/lib/cni/networks/"+name) {
		out = append(out, "file "+f)
	}
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, m := range mounts {
		if strings.HasPrefix(m.Mountpoint, c.dir) {
			out = append(out, "mount "+m.Mountpoint)
		}
		if m.FSType == "cgroup" || m.FSType == "cgroup2" {
			if group := filepath.Join(m.Mountpoint, name); exists(group) {
				out = append(out, "cgroup "+group)
			}
		}
	}
	bridge := strings.Replace(name, "keelson-rig-", "kl", 1)
	links, err := net.Interfaces()
	if err != nil {
		c.t.Fatal(err)
	}
	for _, l := range links {
		master, err := os.Readlink("/sys/class/net/" + l.Name + "/master")
		if l.Name == bridge || err == nil && filepath.Base(master) == bridge {
			out = append(out, "interface "+l.Name)
		}
	}
	return append(out, rules(c.t, name)...)
}

// processes lists the processes that name the folder or have their root below it.
func (c *command) processes() []string {
	var out []string
	for _, p := range globs(c.t, "/proc/[0-9]*") {
		line, err := os.ReadFile(p + "/cmdline")
		if err != nil {
			continue // it has ended
		}
		mounts, err := os.ReadFile(p + "/mountinfo")
		if err != nil {
			continue
		}
		root := regexp.MustCompile(`(?m)^\S+ \S+ \S+ \S+ / .*` + regexp.QuoteMeta(c.dir+"/"))
		if strings.Contains(string(line), c.dir+"/") || root.Match(mounts) {
			out = append(out,
				fmt.Sprintf("process %s %s", filepath.Base(p), strings.ReplaceAll(string(line), "\x00", " ")))
		}
	}
	return out
}

// rules lists the lines of iptables that name a network.
func rules(t *testing.T, network string) []string {
	t.Helper()
	prog := "/usr/sbin/iptables-save"
	if !exists(prog) {
		return nil
	}
	saved, err := exec.Command(prog).Output()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(saved)) {
		if strings.Contains(line, `\"`+network+`\"`) {
			out = append(out, "rule "+strings.TrimSpace(line))
		}
	}
	return out
}

// nothingLeft fails if anything is left. It also checks what was there before, because that may no longer be found by
// the name of the folder.
func (c *command) nothingLeft(before []string) {
	c.t.Helper()
	for _, x := range c.traces() {
		c.t.Errorf("left behind: %s", x)
	}
	for _, x := range before {
		kind, what, _ := strings.Cut(x, " ")
		switch {
		case kind == "interface" && exists("/sys/class/net/"+what), kind == "file" && exists(what):
			c.t.Errorf("left behind: %s", x)
		case kind == "process":
			pid, line, _ := strings.Cut(what, " ")
			now, err := os.ReadFile("/proc/" + pid + "/cmdline")
			if err == nil && len(now) > 0 && strings.ReplaceAll(string(now), "\x00", " ") == line {
				c.t.Errorf("left behind: %s", x)
			}
		}
	}
	for _, f := range rig.Find(purpose) {
		if f.Dir == c.dir {
			c.t.Errorf("left behind: a ledger in %s", f.Dir)
		}
	}
}

func globs(t *testing.T, patterns ...string) []string {
	t.Helper()
	var out []string
	for _, p := range patterns {
		found, err := filepath.Glob(p)
		if err != nil {
			t.Fatal(err)
		}
		out = slices.Concat(out, found)
	}
	return out
}

func exists(file string) bool {
	_, err := os.Lstat(file)
	return err == nil
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
