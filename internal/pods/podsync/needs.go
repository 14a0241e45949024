package podsync

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/allocation"
	"keelson/internal/pods/pod"
	"keelson/internal/pods/status"
	"keelson/internal/runtime/container"
)

// What the syncer needs of the other parts. All of it is safe for concurrent
// use; only methods with a context may block.

// Desired is what should run.
type Desired interface {
	// Get tells the specification and, for a static pod, the API server's picture
	// of it, if there is one.
	Get(types.UID) (spec, mirror *v1.Pod, known bool)
	UIDs() []types.UID
	// Ready reports whether every source has delivered once; before that, a pod
	// that is not known may simply not have been heard of yet.
	Ready() bool
	// Heard reports whether this source has delivered once, or is not used.
	Heard(pod.Source) bool
}

// Observed is what does run.
type Observed interface {
	// Get is false when the runtime was not listed yet, or when what it holds of
	// the pod could not be read yet; the pod is woken when it was. A pod that the
	// runtime holds nothing of is an empty value, and true.
	Get(types.UID) (pod.Runtime, bool)
	UIDs() []types.UID
	// Confirm returns once Get shows what an action did.
	Confirm(context.Context, types.UID, pod.Effect) error
	// Refresh re-reads one pod from the runtime.
	Refresh(context.Context, types.UID) (pod.Runtime, error)
	// Synced is closed when the runtime was listed once.
	Synced() <-chan struct{}
}

// Containers acts on the runtime, one verb at a time. Stopping or removing what
// is already stopped or gone is not an error.
type Containers interface {
	RunSandbox(ctx context.Context, p *v1.Pod, attempt uint32) (id string, err error)
	StopSandbox(ctx context.Context, id string) error
	RemoveSandbox(ctx context.Context, id string) error
	// StartContainer returns when the container runs and its postStart hook is
	// done. The failure tells what to show while the container waits.
	StartContainer(ctx context.Context, s container.Start) (id string, failure *container.StartError)
	// NotStarted counts a start that came to nothing before the runtime was asked.
	NotStarted(kind pod.Kind, reason string)
	// AnnounceStop does what is to be done long before a container stops.
	AnnounceStop(ctx context.Context, s container.Stop)
	StopContainer(ctx context.Context, s container.Stop) error
	RemoveContainer(ctx context.Context, r container.Removal) error
	// UpdateResources gives a running container what p says it may use.
	UpdateResources(ctx context.Context, p *v1.Pod, name, id string) error
	// UpdateSandbox sends the runtime the limits that the pod's cgroup is about to have.
	// It fails where the runtime rejects them.
	UpdateSandbox(ctx context.Context, p *v1.Pod, id string, s container.PodSize) error
	MemoryUsage(ctx context.Context, id string) (int64, error)
	// LinkLogs completes the names of logs of containers that an earlier agent
	// started; it is a look at the disk.
	LinkLogs(have pod.Runtime) error
	// NextAttempt is the attempt that the container's log files call for.
	NextAttempt(ref pod.Ref, container string) (int, error)
}

// ImageResult is what is known of an image; none of Ready and Reason set means
// that it is being fetched.
type ImageResult struct {
	Ready   bool
	Ref     string
	Reason  string // why the container waits
	Message string
	RetryAt time.Time
}

// Images fetches images. Ensure never blocks; the pod is woken when a result is
// there.
type Images interface {
	Ensure(p *v1.Pod, spec *v1.Container, attempt int) ImageResult
	Forget(types.UID)
}

// Volumes prepares and releases what a pod's containers mount. The pod is woken
// when an answer changes.
type Volumes interface {
	Want(*v1.Pod)
	// Ready may fail with a pod.Refusal: the pod cannot run here.
	Ready(types.UID) (bool, error)
	// RetryAt is when the volume that failed is tried again; zero: none failed.
	RetryAt(types.UID) time.Time
	Mounts(ctx context.Context, p *v1.Pod, c *v1.Container, expand func(string) (string, error)) ([]pod.Mount, error)
	// Devices are the block devices that the container is given of its volumes.
	Devices(p *v1.Pod, c *v1.Container) ([]pod.Device, error)
	Release(pod.Ref)
	Released(types.UID) (bool, error)
}

// Claims has drivers prepare what pods claim (dynamic resource allocation), and take
// it back. The pod is woken when an answer changes.
type Claims interface {
	Want(*v1.Pod)
	Ready(types.UID) (bool, error)
	// RetryAt is when what failed is tried again; zero: nothing did.
	RetryAt(types.UID) time.Time
	// Contribution is what the container is given of its pod's claims.
	Contribution(p *v1.Pod, c *v1.Container) (pod.Contribution, error)
	// Health tells how well the devices of its claims are, by container.
	Health(*v1.Pod) map[string][]v1.ResourceStatus
	// Release takes back what only this pod used, of which nothing runs any more. A pod
	// without claims is released at once.
	Release(pod.Ref)
	Released(types.UID) (bool, error)
}

// Objects keeps the ConfigMaps and Secrets that pods refer to.
type Objects interface {
	Register(*v1.Pod)
	Unregister(types.UID)
}

// Cgroups keeps the pods' cgroups.
type Cgroups interface {
	// MakePod makes the cgroup of a pod that nothing was there of, and gives it what p
	// asks for whether it is there or not.
	MakePod(ctx context.Context, p *v1.Pod) error
	// EnsurePod makes what is missing of it, and leaves one that is whole as it is.
	EnsurePod(ctx context.Context, p *v1.Pod) error
	RemovePod(ctx context.Context, uid types.UID) error
	// ReducePod leaves the pod with the least CPU, until its cgroup can go.
	ReducePod(uid types.UID) error
	// Gone reports whether nothing is left of the pod's cgroup.
	Gone(p *v1.Pod) bool
	// Size is what the pod's cgroup allows, and what p asks it to.
	Size(p *v1.Pod) (now, next allocation.Size, err error)
	// Resize writes the limit of one resource, or its weight, as p asks.
	Resize(p *v1.Pod, res v1.ResourceName, limit bool) error
	MemoryUsage(*v1.Pod) (int64, error)
}

// Probes runs the probes of running containers. The pod is woken when a result
// changes.
type Probes interface {
	// Sync tells which containers of the pod there are now.
	Sync(p *v1.Pod, have pod.Runtime, podIPs []string, going bool)
	Result(p *v1.Pod, c pod.Container) status.Probe
	Forget(types.UID)
}

// Status publishes. Publish never blocks; the last facts of a pod win.
type Status interface {
	Publish(status.Facts)
	Forget(types.UID)
}

// Allocation grants pods their share of the node. A pod is woken when what it was
// granted, or what is shown of its resizes, changes.
type Allocation interface {
	// Admit judges a pod on its arrival; running says that an earlier agent has
	// admitted it. It may block, for this pod alone.
	Admit(ctx context.Context, p *v1.Pod, running bool) allocation.Verdict
	// Refused counts a pod that another part has refused for good.
	Refused(reason string)
	// Consider is the pod with what it was granted in place of what it wants.
	Consider(*v1.Pod) *v1.Pod
	// Gap is what the running containers lack of what p names, and Progress tells
	// whether there was any, and Tried how an attempt to close it went.
	Gap(p *v1.Pod, have pod.Runtime) allocation.Gap
	Progress(p *v1.Pod, open bool)
	Tried(p *v1.Pod, took time.Duration, failed error)
	Failing(types.UID) bool
	// Starting notes what a container will have in force before it is started.
	Starting(p *v1.Pod, container string, r v1.ResourceRequirements)
	// Enforced and EnforcedPod note what is in force, and InForce tells.
	Enforced(p *v1.Pod, container string, r v1.ResourceRequirements)
	EnforcedPod(*v1.Pod)
	InForce(*v1.Pod) *v1.Pod
	Conditions(types.UID) []v1.PodCondition
	Account() []*v1.Pod
	Vacate(types.UID)
	Forget(types.UID)
}

// Resources hands out what only one container can have: whole CPUs, memory of a NUMA
// node, devices. Allocation.Admit has reserved it.
type Resources interface {
	// Confirm makes good outside what was reserved for a pod that is about to start
	// for the first time. It may block, for this pod alone. Confirmed reports whether
	// there is nothing to make good.
	Confirmed(*v1.Pod) bool
	Confirm(ctx context.Context, p *v1.Pod) *pod.Refusal
	// Late returns for which device plugins a pod that was admitted has to wait before its containers start. The pod is
	// woken when one registers.
	Late(*v1.Pod) pod.Late
	// Health tells how well it is, by container.
	Health(*v1.Pod) map[string][]v1.ResourceStatus
	// Contribution is what the container is given of it.
	Contribution(ctx context.Context, p *v1.Pod, c *v1.Container) (pod.Contribution, error)
	// Release gives back all that the pod has. A pod that has nothing is no error.
	Release(types.UID)
}

// Dirs makes and removes a pod's own directories.
type Dirs interface {
	Make(uid types.UID) error
	// Remove removes the pod's directory and its log directory. It refuses while
	// anything is mounted below.
	Remove(ctx context.Context, ref pod.Ref) error
	// NoteRestarts writes down, for an agent after this one, which restarts of the
	// pod's containers are under way; Restarts reads that.
	NoteRestarts(uid types.UID, r Restarts) error
	Restarts(uid types.UID) (Restarts, error)
	// NoteEnd writes down that the pod was put out, and End reads that.
	NoteEnd(uid types.UID, e End) error
	End(uid types.UID) (e End, ended bool, err error)
}

// Restarts are restarts that what the runtime holds does not tell of: a container
// that was stopped for one looks like one that has ended by itself, and one that
// was removed for one like one that is lost.
type Restarts struct {
	Recalled []string       `json:"recalled,omitempty"` // IDs of containers that are stopped to be started anew
	Anew     map[string]int `json:"anew,omitempty"`     // containers that a restart of all removes, and as which attempt they begin
}
