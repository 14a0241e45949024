package podsync

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/allocation"
	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
	"keelson/internal/pods/status"
	"keelson/internal/runtime/container"
)

// What the syncer needs of the other parts, split by what uses it here. All of it is safe for concurrent use. Only
// methods with a context, and those of RestartRecords, EvictionRecords, Logs, CgroupResizer, CgroupRemover, Dirs and
// ResourceReleaser, may block: they are called by tasks alone.

// Desired is what should run.
type Desired interface {
	// Get returns the specification and, for a static pod, its mirror pod, if there is one.
	Get(types.UID) (spec, mirror *v1.Pod, known bool)
	UIDs() []types.UID
	// Ready reports whether every source has delivered once; before that, a pod
	// that is not known may be delivered yet.
	Ready() bool
	// SourceReady reports whether this source has delivered once, or is not used.
	SourceReady(pod.Source) bool
}

// Observed is what does run.
type Observed interface {
	// Get is false when the runtime was not listed yet, or when what it holds of
	// the pod could not be read yet; the pod is woken when it was. A pod that the
	// runtime holds nothing of is an empty value, and true.
	Get(types.UID) (pod.Runtime, bool)
	UIDs() []types.UID
	// Synced is closed when the runtime was listed once.
	Synced() <-chan struct{}
}

// Relister has one pod read from the runtime.
type Relister interface {
	// Confirm returns once Observed.Get shows what an action did.
	Confirm(context.Context, types.UID, pod.Effect) error
	// Refresh re-reads one pod from the runtime.
	Refresh(context.Context, types.UID) (pod.Runtime, error)
}

// Sandboxes acts on the sandboxes of the runtime. Stopping or removing what
// is already stopped or gone is not an error.
type Sandboxes interface {
	RunSandbox(ctx context.Context, p *v1.Pod, attempt uint32) (id string, err error)
	StopSandbox(ctx context.Context, id string) error
	RemoveSandbox(ctx context.Context, id string) error
}

// Starter starts containers.
type Starter interface {
	// StartContainer returns when the container runs and its postStart hook is
	// done. The failure says what to show while the container waits.
	StartContainer(ctx context.Context, s container.Start) (id string, failure *container.StartError)
	// NotStarted counts a start that failed before the runtime was asked.
	NotStarted(kind pod.Kind, reason string)
}

// Stopper stops and removes containers. Those that are stopped or gone already are no error.
type Stopper interface {
	// AnnounceStop does what is to be done long before a container stops.
	AnnounceStop(ctx context.Context, s container.Stop)
	StopContainer(ctx context.Context, s container.Stop) error
	RemoveContainer(ctx context.Context, r container.Removal) error
}

// Updater updates resources in the runtime.
type Updater interface {
	// UpdateResources gives a running container what p says it may use.
	UpdateResources(ctx context.Context, p *v1.Pod, name, id string) error
	// UpdateSandbox sends the runtime the limits that the pod's cgroup is about to have.
	// It fails where the runtime rejects them.
	UpdateSandbox(ctx context.Context, p *v1.Pod, id string, s container.PodSize) error
	MemoryUsage(ctx context.Context, id string) (int64, error)
}

// Logs looks at the log directories of containers.
type Logs interface {
	// LinkLogs completes the names of logs of containers that an earlier agent started.
	LinkLogs(have pod.Runtime) error
	// NextAttempt is the attempt that the container's log files call for.
	NextAttempt(ref pod.Ref, container string) (int, error)
}

// ImageResult is what is known of an image. Without Ready and without a Reason it is being pulled.
type ImageResult struct {
	Ready bool
	Ref   string
	pod.Waiting
	RetryAt time.Time
}

// Images pulls images. Ensure never blocks; the pod is woken when a result is
// there.
type Images interface {
	Ensure(p *v1.Pod, spec *v1.Container, attempt int) ImageResult
	Forget(types.UID)
}

// Preparer prepares what pods want, such as volumes or resource claims. The pod is woken when an answer changes.
type Preparer interface {
	Want(*v1.Pod)
	// Ready may fail with a pod.Rejection: the pod cannot run here.
	Ready(types.UID) (bool, error)
	// RetryAt is when what failed is tried again; zero: nothing did.
	RetryAt(types.UID) time.Time
}

// Releaser releases what a Preparer has prepared for a pod of which nothing runs any more. The pod is woken when an
// answer changes. What a pod does not have is released at once.
type Releaser interface {
	Release(pod.Ref)
	Released(types.UID) (bool, error)
}

// Mounter tells what a container is given of its pod's volumes.
type Mounter interface {
	Mounts(
		ctx context.Context, p *v1.Pod, c *v1.Container, expand func(string) (string, error),
	) ([]pod.Mount, error)
	// Devices are the block devices.
	Devices(p *v1.Pod, c *v1.Container) ([]pod.Device, error)
}

// ClaimContributor tells what a container is given of its pod's claims.
type ClaimContributor interface {
	Contribution(p *v1.Pod, c *v1.Container) (pod.Contribution, error)
}

// HealthReporter reports the health of what containers are given, by container.
type HealthReporter interface {
	Health(*v1.Pod) map[string][]v1.ResourceStatus
}

// Objects keeps the ConfigMaps and Secrets that pods refer to.
type Objects interface {
	Register(*v1.Pod)
	Unregister(types.UID)
}

// CgroupMaker creates cgroups of pods.
type CgroupMaker interface {
	// MakePod creates the cgroup of a pod of which nothing existed, and gives it what p
	// asks for whether it exists or not.
	MakePod(ctx context.Context, p *v1.Pod) error
	// EnsurePod creates what is missing of it, and leaves one that is whole as it is.
	EnsurePod(ctx context.Context, p *v1.Pod) error
}

// CgroupResizer changes the limits of a pod's cgroup.
type CgroupResizer interface {
	// Gone reports whether nothing is left of the pod's cgroup.
	Gone(p *v1.Pod) bool
	// Size is what the pod's cgroup allows, and what p asks it to.
	Size(p *v1.Pod) (now, next allocation.Size, err error)
	// Resize writes the limit of one resource, or its weight, as p asks.
	Resize(p *v1.Pod, res v1.ResourceName, limit bool) error
	MemoryUsage(*v1.Pod) (int64, error)
}

// CgroupRemover removes cgroups of pods.
type CgroupRemover interface {
	RemovePod(ctx context.Context, uid types.UID) error
	// ReducePod leaves the pod with the least CPU, until its cgroup can be removed.
	ReducePod(uid types.UID) error
}

// Probes runs the probes of running containers. The pod is woken when a result
// changes.
type Probes interface {
	// Sync updates which containers of the pod there are.
	Sync(v podplan.View, podIPs []string, terminating bool)
	Result(p *v1.Pod, c pod.Container) status.Probe
	Forget(types.UID)
}

// Status publishes. Publish never blocks; the last facts of a pod win.
type Status interface {
	Publish(status.Facts)
	Forget(types.UID)
}

// Admitter admits pods to the node.
type Admitter interface {
	// Admit judges a pod on its arrival; running says that an earlier agent has
	// admitted it. The victims in the verdict are to be preempted.
	Admit(ctx context.Context, p *v1.Pod, running bool) allocation.Verdict
	// Refused counts a pod that another part has rejected for good.
	Refused(reason string)
}

// Allocated is what pods have of the node. A pod is woken when what is allocated to it, or
// what is shown of its resizes, changes.
type Allocated interface {
	// Allocate is the pod with its allocated resources in place of those it wants. The pod is woken once a request
	// that is not decided yet is decided.
	Allocate(p *v1.Pod) (as *v1.Pod, decided bool)
	// Actuated is the pod with its actuated resources.
	Actuated(*v1.Pod) *v1.Pod
	Conditions(types.UID) []v1.PodCondition
	Account() []*v1.Pod
}

// Actuation records what is actuated of the allocated resources.
type Actuation interface {
	// Starting records what a container will have before it is started, which may write to the disk.
	Starting(p *v1.Pod, container string, r v1.ResourceRequirements)
	SetActuated(p *v1.Pod, container string, r v1.ResourceRequirements)
	SetPodActuated(*v1.Pod)
}

// Resizes are resizes of pods that were accepted.
type Resizes interface {
	// Gap is what the running containers lack of what p names.
	Gap(p *v1.Pod, have pod.Runtime) allocation.Gap
	// Progress says whether there is any gap, and Tried how an attempt to close it went.
	Progress(p *v1.Pod, open bool)
	Tried(p *v1.Pod, took time.Duration, failed error)
	Failing(types.UID) bool
}

// Occupancy gives back the place of a pod among those that take up the node.
type Occupancy interface {
	Vacate(types.UID)
	Forget(types.UID)
}

// Confirmer has device plugins confirm what is allocated to pods.
type Confirmer interface {
	// Confirm asks the plugins for what was allocated to a pod that is about to start
	// for the first time. Confirmed reports whether there is nothing to ask for.
	Confirmed(*v1.Pod) bool
	Confirm(ctx context.Context, p *v1.Pod) *pod.Rejection
	// Late returns for which device plugins an admitted pod has to wait before its containers start. The pod is
	// woken when one registers.
	Late(*v1.Pod) pod.Late
}

// ResourceContributor tells what a container is given of CPUs, memory of NUMA nodes and devices.
type ResourceContributor interface {
	Contribution(ctx context.Context, p *v1.Pod, c *v1.Container) (pod.Contribution, error)
}

// ResourceReleaser takes back all that is allocated to a pod alone. A pod that has nothing is no error.
type ResourceReleaser interface {
	Release(types.UID)
}

// Dirs creates and removes a pod's own directories.
type Dirs interface {
	Make(uid types.UID) error
	// Remove removes the pod's directory and its log directory. It refuses while
	// anything is mounted below.
	Remove(ctx context.Context, ref pod.Ref) error
}

// RestartRecords keeps, for an agent after this one, which restarts of the pod's containers are under way.
type RestartRecords interface {
	NoteRestarts(uid types.UID, r Restarts) error
	Restarts(uid types.UID) (Restarts, error)
}

// EvictionRecords keeps, for an agent after this one, that the pod was evicted.
type EvictionRecords interface {
	NoteEviction(uid types.UID, e podplan.EvictionRecord) error
	Eviction(uid types.UID) (e podplan.EvictionRecord, evicted bool, err error)
}

// Restarts are restarts that what the runtime holds does not show: a container
// that was stopped for one looks like one that has ended by itself, and one that
// was removed for one like one that is lost.
type Restarts struct {
	// StoppedForRestart are IDs of containers that are stopped to be started again.
	StoppedForRestart []string `json:"recalled,omitempty"`
	// Anew are containers that a restart of all containers removes, and as which attempt they begin.
	Anew map[string]int `json:"anew,omitempty"`
}
