package inputs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"keelson/test/kit/fakecri"
	"keelson/test/rig"
)

// Node runs real kubelets, one at a time and for a short time each, on a fake runtime. Each has its
// own network, mount and cgroup namespaces, so that it may use any address, directory and cgroup
// without side effects.
type Node struct {
	cgroup string
	socket string
	cri    *fakecri.Runtime
}

// Start is a kubelet to be run.
type Start struct {
	Binary string   `json:"binary"`
	Args   []string `json:"args"`
	Cgroup string   `json:"cgroup"`
	// Pods is the number of pods to wait for once the kubelet serves.
	Pods int `json:"pods"`
}

// Seen is what a kubelet has shown.
type Seen struct {
	Ended   string            `json:"ended,omitempty"` // the end of its log, if it ended by itself
	Configz json.RawMessage   `json:"configz,omitempty"`
	Pods    []json.RawMessage `json:"pods,omitempty"`
}

// insideEnv holds a Start for a process that is to enter its namespaces, enteredEnv for one that has entered them.
const (
	insideEnv  = "KEELSON_INPUTS_INSIDE"
	enteredEnv = "KEELSON_INPUTS_ENTERED"
)

// Unified reports whether the machine has cgroups of version 2 alone. Kubelets are run in
// namespaces of version 1 only.
func Unified() (bool, error) {
	var s unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &s); err != nil {
		return false, fmt.Errorf("look at cgroups: %w", err)
	}
	return s.Type == unix.CGROUP2_SUPER_MAGIC, nil
}

// NewNode makes a node in a rig.
func NewNode(r *rig.Rig) (*Node, error) {
	cgroup, err := r.Cgroup()
	if err != nil {
		return nil, err
	}
	n := &Node{
		cgroup: cgroup,
		socket: filepath.Join(r.Dir, "fake.sock"),
		cri: fakecri.New(fakecri.Options{
			Seed:      "inputs",
			PodCIDR:   "127.203.0.0/16",
			ImageRoot: r.Dir,
		}),
	}
	return n, n.cri.Listen(n.socket)
}

// Close ends the runtime.
func (n *Node) Close() { n.cri.Close() }

// Flags override settings that this node does not support, so that a kubelet starts with any configuration, and
// set the address and port of the server.
func (n *Node) Flags() []string {
	return []string{
		"--container-runtime-endpoint=unix://" + n.socket,
		"--image-service-endpoint=",
		"--fail-swap-on=false",
		"--fail-cgroupv1=false",
		"--make-iptables-util-chains=false",
		"--enable-server=true",
		"--address=127.0.0.1",
		"--port=10250",
		"--read-only-port=0",
		"--healthz-port=10248",
		"--healthz-bind-address=127.0.0.1",
		"--anonymous-auth=true",
		"--authentication-token-webhook=false",
		"--authorization-mode=AlwaysAllow",
		"--client-ca-file=",
		"--tls-cert-file=",
		"--tls-private-key-file=",
		"--rotate-server-certificates=false",
		"--tls-cipher-suites=",
		"--kubeconfig=",
		"--bootstrap-kubeconfig=",
		"--image-credential-provider-config=",
		"--image-credential-provider-bin-dir=",
		"--pod-manifest-path=",
		"--manifest-url=",
		"--resolv-conf=",
		"--root-dir=/var/lib/kubelet",
		"--cert-dir=/var/lib/kubelet/pki",
		"--lock-file=",
		"--exit-on-lock-contention=false",
		"--cgroup-driver=cgroupfs", // as the runtime reports
		"--cpu-manager-policy=none",
		"--memory-manager-policy=None",
		"--hostname-override=" + nodeName,
	}
}

// Run starts a kubelet, and returns what it shows once it serves or has ended.
func (n *Node) Run(ctx context.Context, s Start) (Seen, error) {
	s.Cgroup = n.cgroup
	how, err := json.Marshal(s)
	if err != nil {
		return Seen{}, fmt.Errorf("encode start: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return Seen{}, fmt.Errorf("find this program: %w", err)
	}
	// The process is killed when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, self)
	var out, logged bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &logged
	cmd.Env = append(os.Environ(), insideEnv+"="+string(how))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		return Seen{}, fmt.Errorf("run %s: %w\n%s", s.Binary, err, logged.String())
	}
	var seen Seen
	if err := json.Unmarshal(out.Bytes(), &seen); err != nil {
		return Seen{}, fmt.Errorf("decode what %s showed: %w", s.Binary, err)
	}
	return seen, nil
}
