// Command placement runs scenes of test/kit/placement with upstream's agent and records the results. The agent sees a
// simulated machine: in a mount namespace of its own, files of the scene replace those in /sys and /proc that describe
// processors and memory.
//
//	placement -kubelet BINARY -scenes DIR [NAME...]
//
// Each DIR/NAME.json is read and rewritten. The command needs root.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"keelson/test/kit/fakecri"
	"keelson/test/kit/placement"
)

func main() {
	kubelet := flag.String("kubelet", "", "upstream's binary")
	scenes := flag.String("scenes", "", "the directory of the scenes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	all, err := placement.Load(*scenes)
	for _, s := range all {
		if err != nil || len(flag.Args()) > 0 && !slices.Contains(flag.Args(), s.Name) {
			continue
		}
		fmt.Println(s.Name)
		if err = record(ctx, *kubelet, &s); err == nil {
			err = write(filepath.Join(*scenes, s.Name+".json"), s)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write(file string, s placement.Scene) error {
	b, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(b, '\n'), 0o644)
}

// stage is an agent on its simulated machine.
type stage struct {
	dir     string
	port    int // of its read-only server
	runtime *fakecri.Runtime
	done    chan error
	cmd     *exec.Cmd
	log     *os.File
}

func record(ctx context.Context, kubelet string, s *placement.Scene) (err error) {
	g := &stage{}
	if g.dir, err = os.MkdirTemp("", "placement-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(g.dir)) }()
	if err := g.prepare(s); err != nil {
		return err
	}
	defer g.runtime.Close()
	if err := g.start(ctx, kubelet); err != nil {
		return err
	}
	defer g.stop()
	s.Start = ""
	if err := g.until(ctx, g.up); err != nil {
		select {
		case <-g.done:
			g.done <- nil
			s.Start = g.lastWords()
			return nil
		default:
			return fmt.Errorf("%s: %w\n%s", s.Name, err, g.lastWords())
		}
	}
	for i := range s.Steps {
		if err := g.play(ctx, &s.Steps[i]); err != nil {
			return fmt.Errorf("%s, step %d: %w\n%s", s.Name, i, err, g.lastWords())
		}
	}
	return nil
}

// lastWords returns the last error in the agent's log.
func (g *stage) lastWords() string {
	b, err := os.ReadFile(g.log.Name())
	if err != nil {
		return err.Error()
	}
	var logged string
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "E") || strings.HasPrefix(line, "F") || strings.HasPrefix(line, "Error") ||
			strings.Contains(line, "err=") {
			if _, text, ok := strings.Cut(line, "] "); ok {
				line = text
			}
			logged = strings.TrimSpace(line)
		}
	}
	return logged
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

func (g *stage) prepare(s *placement.Scene) error {
	for _, d := range []string{"root", "manifests", "logs", "lib"} {
		if err := os.Mkdir(filepath.Join(g.dir, d), 0o755); err != nil {
			return err
		}
	}
	for name, f := range s.Machine.Files() {
		file := filepath.Join(g.dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, f.Data, f.Mode)); err != nil {
			return err
		}
	}
	g.runtime = fakecri.New(fakecri.Options{})
	g.runtime.AddImage(fakecri.Image{Name: "app:1", Local: true})
	if err := g.runtime.Listen(filepath.Join(g.dir, "cri.sock")); err != nil {
		return err
	}
	var ports [3]int
	for i := range ports {
		var err error
		if ports[i], err = freePort(); err != nil {
			return err
		}
	}
	g.port = ports[0]
	conf := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"containerRuntimeEndpoint": "unix://" + filepath.Join(g.dir, "cri.sock"),
		"address":                  "127.0.0.1", "port": ports[1], "readOnlyPort": ports[0], "healthzPort": ports[2],
		"staticPodPath": filepath.Join(g.dir, "manifests"), "podLogsDir": filepath.Join(g.dir, "logs"),
		"volumePluginDir": filepath.Join(g.dir, "plugins"),
		"cgroupDriver":    "cgroupfs", "cgroupsPerQOS": false, "enforceNodeAllocatable": []string{},
		"failCgroupV1": false, "failSwapOn": false,
		"makeIPTablesUtilChains": false, "fileCheckFrequency": "1s", "cpuManagerReconcilePeriod": "1h",
		"syncFrequency": "1s",
		"authentication": map[string]any{
			"webhook":   map[string]any{"enabled": false},
			"anonymous": map[string]any{"enabled": true},
		},
		"authorization": map[string]any{"mode": "AlwaysAllow"},
		"evictionHard":  map[string]string{"memory.available": "100Mi"},
	}
	b, err := json.Marshal(s.Config)
	if err != nil {
		return err
	}
	var extra map[string]any
	if err := json.Unmarshal(b, &extra); err != nil {
		return err
	}
	if len(s.Config.ReservedMemory) > 0 {
		list := []any{}
		for _, node := range slices.Sorted(mapKeys(s.Config.ReservedMemory)) {
			list = append(list, map[string]any{
				"numaNode": node,
				"limits":   map[string]string{"memory": s.Config.ReservedMemory[node]},
			})
		}
		extra["reservedMemory"] = list
	}
	for k, v := range extra {
		conf[k] = v
	}
	if b, err = yaml.Marshal(conf); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(g.dir, "kubelet.yaml"), b, 0o644)
}

func mapKeys[V any](m map[int]V) func(func(int) bool) {
	return func(yield func(int) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// start starts the agent in a mount namespace with the machine of the scene.
func (g *stage) start(ctx context.Context, kubelet string) error {
	var err error
	if g.log, err = os.Create(filepath.Join(g.dir, "kubelet.log")); err != nil {
		return err
	}
	const script = `set -e
mount --make-rprivate /
mount --bind "$1/sys/devices/system/cpu" /sys/devices/system/cpu
mount --bind "$1/sys/devices/system/node" /sys/devices/system/node
mount --bind "$1/sys/kernel/mm/hugepages" /sys/kernel/mm/hugepages
mount --bind "$1/proc/cpuinfo" /proc/cpuinfo
mount --bind "$1/lib" /var/lib/kubelet
exec "$2" --config="$1/kubelet.yaml" --root-dir="$1/root" --cert-dir="$1/root/pki" --hostname-override=node --v=4`
	if err := os.MkdirAll("/var/lib/kubelet", 0o755); err != nil {
		return err
	}
	g.cmd = exec.CommandContext(ctx, "sh", "-c", script, "sh", g.dir, kubelet)
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	g.cmd.Stdout, g.cmd.Stderr = g.log, g.log
	if err := g.cmd.Start(); err != nil {
		return err
	}
	g.done = make(chan error, 1)
	go func() { g.done <- g.cmd.Wait() }()
	return nil
}

func (g *stage) stop() {
	_ = g.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-g.done:
	case <-time.After(10 * time.Second):
		_ = g.cmd.Process.Kill()
		<-g.done
	}
	_ = g.log.Close()
}

// until polls until the condition is met. It fails if the agent ends, or after 90 seconds.
func (g *stage) until(ctx context.Context, is func() (bool, error)) error {
	deadline := time.Now().Add(90 * time.Second)
	for {
		ok, err := is()
		if ok {
			return nil
		}
		select {
		case end := <-g.done:
			g.done <- end
			return errors.New("the agent has ended")
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within a minute and a half: %w", err)
		}
	}
}

func (g *stage) pods() ([]v1.Pod, error) {
	resp, err := http.Get("http://127.0.0.1:" + strconv.Itoa(g.port) + "/pods")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	var list v1.PodList
	return list.Items, json.Unmarshal(b, &list)
}

func (g *stage) up() (bool, error) {
	_, err := g.pods()
	return err == nil, err
}

// play executes one step, waits until the pod runs, has failed or is gone, and records the result.
func (g *stage) play(ctx context.Context, step *placement.Step) error {
	step.Reason, step.Message, step.Containers = "", "", nil
	if p := step.Add; p != nil {
		b, err := yaml.Marshal(p.Spec())
		if err != nil {
			return err
		}
		file := filepath.Join(g.dir, "manifests", p.Name+".yaml")
		if err := errors.Join(os.WriteFile(file+".tmp", b, 0o644), os.Rename(file+".tmp", file)); err != nil {
			return err
		}
		err = g.until(ctx, func() (bool, error) {
			pods, err := g.pods()
			for _, have := range pods {
				if string(have.UID) == p.Name && (have.Status.Phase == v1.PodFailed || running(have)) {
					step.Reason, step.Message = have.Status.Reason, have.Status.Message
					return true, nil
				}
			}
			return false, err
		})
		if err != nil {
			return err
		}
		if step.Reason == "" {
			if step.Containers, err = g.limits(ctx, p.Name); err != nil {
				return err
			}
		}
	} else {
		if err := os.Remove(filepath.Join(g.dir, "manifests", step.Remove+".yaml")); err != nil {
			return err
		}
		err := g.until(ctx, func() (bool, error) {
			pods, err := g.pods()
			return err == nil &&
				!slices.ContainsFunc(pods, func(p v1.Pod) bool { return string(p.UID) == step.Remove }), err
		})
		if err != nil {
			return err
		}
	}
	step.CPUs, step.Memory = nil, nil
	if step.Add == nil || step.Reason != "" {
		return nil // the agent releases resources of such pods only when it admits the next one
	}
	read := func(name string) (json.RawMessage, error) {
		b, err := os.ReadFile(filepath.Join(g.dir, "root", name))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return b, err
	}
	var err, merr error
	step.CPUs, err = read("cpu_manager_state")
	step.Memory, merr = read("memory_manager_state")
	return errors.Join(err, merr)
}

func running(p v1.Pod) bool {
	return p.Status.Phase == v1.PodRunning &&
		!slices.ContainsFunc(p.Status.ContainerStatuses,
			func(c v1.ContainerStatus) bool { return c.State.Running == nil })
}

// limits returns the CPUs, the NUMA nodes and the CPU quota of a pod's containers in the runtime.
func (g *stage) limits(ctx context.Context, uid string) (map[string]placement.ContainerLimits, error) {
	list, err := g.runtime.ListContainers(
		ctx,
		&cri.ListContainersRequest{
			Filter: &cri.ContainerFilter{LabelSelector: map[string]string{"io.kubernetes.pod.uid": uid}},
		},
	)
	if err != nil {
		return nil, err
	}
	out := map[string]placement.ContainerLimits{}
	for _, c := range list.Containers {
		st, err := g.runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: c.Id})
		if err != nil {
			return nil, err
		}
		r := st.Status.GetResources().GetLinux()
		out[c.Metadata.Name] = placement.ContainerLimits{
			CPUs:  r.GetCpusetCpus(),
			Mems:  r.GetCpusetMems(),
			Quota: r.GetCpuQuota(),
		}
	}
	return out, nil
}
