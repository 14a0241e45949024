package differ

import (
	"context"
	"slices"

	"keelson/test/kit/fakecri"
)

// containerRuntime is the container runtime of a side: the fake one, or containerd. Pods are
// named by namespace/name.
type containerRuntime interface {
	// open starts to serve the agent, at the beginning and again after drop.
	open(ctx context.Context) error
	// drop ends all connections and accepts none until open. Containers continue to run.
	drop()
	close() error

	// Exit ends a running container with a code, as if its program had.
	Exit(pod, container string, code int32) error
	// KillSandbox kills the pause process of the pod's ready sandbox.
	KillSandbox(pod string) error

	// Pods returns every sandbox with its containers, PodsNamed those of one pod.
	Pods() []fakecri.Pod
	PodsNamed(pod string) []fakecri.Pod
	// busy reports whether a call for the pod is under way that may take long.
	busy(pod string) bool
	// left lists what is left of pods in the runtime besides sandboxes and containers.
	left() ([]string, error)
}

// onFake is the fake runtime. Its calls take no time, but for faults and stops of containers that ignore the signal.
type onFake struct {
	*fakecri.Runtime
	socket string
}

func (f *onFake) open(context.Context) error { return f.Listen(f.socket) }
func (f *onFake) drop()                      { f.Disconnect() }
func (f *onFake) left() ([]string, error)    { return nil, nil }

func (f *onFake) busy(pod string) bool {
	return slices.ContainsFunc(f.PodsNamed(pod), func(p fakecri.Pod) bool {
		return slices.ContainsFunc(p.Containers, func(c fakecri.Container) bool { return c.Stopping })
	})
}

func (f *onFake) close() error {
	f.Close()
	return nil
}
