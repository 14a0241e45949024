package fakecri

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Exit ends a running container with a code, as if its program had. The pod is
// named name or namespace/name.
func (r *Runtime) Exit(pod, name string, code int32) error { return r.end(pod, name, code, "") }

// OOMKill ends a running container as the kernel does when memory runs out.
func (r *Runtime) OOMKill(pod, name string) error { return r.end(pod, name, 137, "OOMKilled") }

func (r *Runtime) end(pod, name string, code int32, reason string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.findLocked(pod, name)
	if err != nil {
		return err
	}
	r.exitLocked(c, code, reason, "")
	return nil
}

// Print lets a running container write to its standard output.
func (r *Runtime) Print(pod, name, text string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.findLocked(pod, name)
	if err != nil {
		return err
	}
	c.print(false, text)
	return nil
}

// KillSandbox ends a pod's ready sandbox and everything in it, as when its
// pause process dies.
func (r *Runtime) KillSandbox(pod string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sandboxes {
		if s.state == cri.PodSandboxState_SANDBOX_READY && named(s, pod) {
			r.stopSandboxLocked(s)
			return nil
		}
	}
	return fmt.Errorf("kill sandbox: pod %q has none that is ready", pod)
}

// findLocked finds the running container of this name.
func (r *Runtime) findLocked(pod, name string) (*container, error) {
	for _, c := range r.containers {
		if c.state == cri.ContainerState_CONTAINER_RUNNING && c.name() == name && named(r.sandboxes[c.sandboxID], pod) {
			return c, nil
		}
	}
	return nil, fmt.Errorf("find container: none of pod %q is named %q and runs", pod, name)
}

func named(s *sandbox, pod string) bool {
	return s != nil && (s.key() == pod || s.config.GetMetadata().GetName() == pod)
}

// PodAt is the pod, as namespace/name, whose sandbox has an address; empty if none has.
func (r *Runtime) PodAt(addr netip.Addr) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sandboxes {
		if s.addr == addr && addr.IsValid() {
			return s.key()
		}
	}
	return ""
}

// Pod is a pod as the runtime holds it: one sandbox and its containers.
type Pod struct {
	Name       string // namespace/name
	UID        string
	Sandbox    *cri.PodSandboxStatus
	Config     *cri.PodSandboxConfig
	Containers []Container // oldest first
}

// Container is a container as the runtime holds it.
type Container struct {
	Status *cri.ContainerStatus
	Config *cri.ContainerConfig
	// Stopping: it was asked to stop, and still runs.
	Stopping bool
}

// Pods returns every sandbox with its containers, oldest first.
func (r *Runtime) Pods() []Pod { return r.podsWhere(func(*sandbox) bool { return true }) }

// PodsNamed are those of one pod, by its namespace/name.
func (r *Runtime) PodsNamed(name string) []Pod {
	return r.podsWhere(func(s *sandbox) bool { return s.key() == name })
}

func (r *Runtime) podsWhere(is func(*sandbox) bool) []Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Pod
	for _, s := range r.sandboxes {
		if !is(s) {
			continue
		}
		p := Pod{
			Name: s.key(), UID: s.config.GetMetadata().GetUid(),
			Sandbox: r.sandboxStatusLocked(s), Config: proto.Clone(s.config).(*cri.PodSandboxConfig),
		}
		for _, c := range s.containers {
			p.Containers = append(p.Containers, Container{
				Status:   r.containerStatusLocked(c),
				Config:   proto.Clone(c.config).(*cri.ContainerConfig),
				Stopping: c.asked && c.state == cri.ContainerState_CONTAINER_RUNNING,
			})
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Pod) int { return int(a.Sandbox.CreatedAt - b.Sandbox.CreatedAt) })
	return out
}

// String shows the pod on one line: "web/a ready: main#0 running, side#1 exited 3",
// with the runtime handler, if it is not the default one, as in "ready on kata".
func (p Pod) String() string {
	state := "ready"
	if p.Sandbox.State != cri.PodSandboxState_SANDBOX_READY {
		state = "notready"
	}
	if h := p.Sandbox.GetRuntimeHandler(); h != "" {
		state += " on " + h
	}
	var list []string
	for _, c := range p.Containers {
		m := c.Status.GetMetadata()
		text := fmt.Sprintf("%s#%d %s", m.GetName(), m.GetAttempt(),
			strings.ToLower(strings.TrimPrefix(c.Status.GetState().String(), "CONTAINER_")))
		if c.Status.GetState() == cri.ContainerState_CONTAINER_EXITED {
			text += fmt.Sprintf(" %d", c.Status.GetExitCode())
		}
		list = append(list, text)
	}
	return strings.TrimSuffix(p.Name+" "+state+": "+strings.Join(list, ", "), ": ")
}
