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

// The interfaces that the syncer needs of other parts, split by their users in this package. All of it is safe for
// concurrent use. Only methods with a context, and those of RestartRecords, EvictionRecords, Logs, CgroupResizer,
// CgroupRemover, Dirs and ResourceReleaser, may block: they are called by tasks alone.

// Desired holds the desired pods.
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

// Observed holds the observed state of pods.
type Observed interface {
	// Get is false while the runtime was not listed yet, or what it holds of the pod could not be read yet; the pod is
	// woken once it was read. A pod that the runtime holds nothing of is an empty value, and true.
	Get(types.UID) (pod.Runtime, bool)
	UIDs() []types.UID
	// Synced is closed when the runtime was listed once.
	Synced() <-chan struct{}
}

// Relister reads one pod from the runtime.
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
	// StartContainer returns when the container runs and its postStart hook is done. The failure has the reason and the
	// message that are shown while the container waits.
	StartContainer(ctx context.Context, s container.Start) (id string, failure *container.StartError)
	// NotStarted counts a start that failed before the runtime was called.
	NotStarted(kind pod.Kind, reason string)
}

// Stopper stops and removes containers. Those that are stopped or gone already are no error.
type Stopper interface {
	// AnnounceStop records the Killing event and runs the preStop hook of a container that is stopped later.
	AnnounceStop(ctx context.Context, s container.Stop)
	StopContainer(ctx context.Context, s container.Stop) error
	RemoveContainer(ctx context.Context, r container.Removal) error
}

// Updater updates resources in the runtime.
type Updater interface {
	// UpdateResources sets the resources of a running container to those in p.
	UpdateResources(ctx context.Context, p *v1.Pod, name, id string) error
	// UpdateSandbox sends the runtime the limits that the pod's cgroup is about to have.
	// It fails where the runtime rejects them.
	UpdateSandbox(ctx context.Context, p *v1.Pod, id string, s container.PodSize) error
	MemoryUsage(ctx context.Context, id string) (int64, error)
}

// Logs reads the log directories of containers, and completes them.
type Logs interface {
	// LinkLogs completes the names of logs of containers that an earlier agent started.
	LinkLogs(have pod.Runtime) error
	// NextAttempt returns the next attempt of the container by its log files.
	NextAttempt(ref pod.Ref, container string) (int, error)
}

// ImageResult is what is known of an image. Without Ready and without a Reason it is being pulled.
type ImageResult struct {
	Ready bool
	Ref   string
	pod.Waiting
	RetryAt time.Time
}

// Images pulls images. Ensure never blocks; the pod is woken when a result is available.
type Images interface {
	Ensure(p *v1.Pod, spec *v1.Container, attempt int) ImageResult
	Forget(types.UID)
}

// Preparer prepares what pods need, such as volumes or resource claims. The pod is woken when a result changes.
type Preparer interface {
	Want(*v1.Pod)
	// Ready may fail with a pod.Rejection: the pod cannot run here.
	Ready(types.UID) (bool, error)
	// RetryAt is when a failed preparation is retried; zero if none has failed.
	RetryAt(types.UID) time.Time
}

// Releaser releases what a Preparer has prepared for a pod of which nothing runs any more. The pod is woken when a
// result changes. What a pod does not have is released at once.
type Releaser interface {
	Release(pod.Ref)
	Released(types.UID) (bool, error)
}

// Mounter returns what a container gets of its pod's volumes.
type Mounter interface {
	Mounts(
		ctx context.Context, p *v1.Pod, c *v1.Container, expand func(string) (string, error),
	) ([]pod.Mount, error)
	// Devices returns the block devices.
	Devices(p *v1.Pod, c *v1.Container) ([]pod.Device, error)
}

// ClaimContributor returns what a container gets of its pod's claims.
type ClaimContributor interface {
	Contribution(p *v1.Pod, c *v1.Container) (pod.Contribution, error)
}

// HealthReporter reports the health of the devices of containers, by container name.
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
	// MakePod creates the cgroup of a pod that is not running. It sets the values of an existing one, too.
	MakePod(ctx context.Context, p *v1.Pod) error
	// EnsurePod creates what is missing of the cgroup. A complete one is not changed.
	EnsurePod(ctx context.Context, p *v1.Pod) error
}

// CgroupResizer changes the limits of a pod's cgroup.
type CgroupResizer interface {
	// Gone reports whether nothing is left of the pod's cgroup.
	Gone(p *v1.Pod) bool
	// Size returns the limits of the pod's cgroup now, and those that p requires.
	Size(p *v1.Pod) (now, next allocation.Size, err error)
	// Resize writes the limit of one resource, or its weight, as p requires.
	Resize(p *v1.Pod, res v1.ResourceName, limit bool) error
	MemoryUsage(*v1.Pod) (int64, error)
}

// CgroupRemover removes cgroups of pods.
type CgroupRemover interface {
	RemovePod(ctx context.Context, uid types.UID) error
	// ReducePod reduces the pod's cgroup to the least CPU, until it can be removed.
	ReducePod(uid types.UID) error
}

// Probes runs the probes of running containers. The pod is woken when a result
// changes.
type Probes interface {
	// Sync updates which containers of the pod are probed.
	Sync(v podplan.View, podIPs []string, terminating bool)
	Result(p *v1.Pod, c pod.Container) status.Probe
	Forget(types.UID)
}

// Status publishes the statuses of pods. Publish never blocks; only the last facts of a pod count.
type Status interface {
	Publish(status.Facts)
	Forget(types.UID)
}

// Admitter admits pods to the node.
type Admitter interface {
	// Admit judges a pod on its arrival; running: an earlier agent has admitted it. The caller preempts the victims in the
	// verdict.
	Admit(ctx context.Context, p *v1.Pod, running bool) allocation.Verdict
	// Refused counts a pod that another part has rejected.
	Refused(reason string)
}

// Allocated has the allocated resources of pods. A pod is woken when its allocated resources, or the conditions of its
// resizes, change.
type Allocated interface {
	// Allocate returns the pod with its allocated resources in place of the desired ones. The pod is woken once a request
	// that is not decided yet is decided.
	Allocate(p *v1.Pod) (as *v1.Pod, decided bool)
	// Actuated returns the pod with its actuated resources.
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
	// Gap returns the difference between the resources of p and those that its running containers have actuated.
	Gap(p *v1.Pod, have pod.Runtime) allocation.Gap
	// Progress records whether there is any gap, and Tried the result of an attempt to close it.
	Progress(p *v1.Pod, open bool)
	Tried(p *v1.Pod, took time.Duration, failed error)
	Failing(types.UID) bool
}

// Occupancy removes pods from the account of those that use the node's resources.
type Occupancy interface {
	Vacate(types.UID)
	Forget(types.UID)
}

// Confirmer lets device plugins confirm what is allocated to pods.
type Confirmer interface {
	// Confirm asks the plugins for what was allocated to a pod that is about to start for the first time. Confirmed
	// reports whether there is nothing to confirm.
	Confirmed(*v1.Pod) bool
	Confirm(ctx context.Context, p *v1.Pod) *pod.Rejection
	// Late returns for which device plugins an admitted pod has to wait before its containers start. The pod is
	// woken when one registers.
	Late(*v1.Pod) pod.Late
}

// ResourceContributor returns what a container gets of CPUs, memory of NUMA nodes and devices.
type ResourceContributor interface {
	Contribution(ctx context.Context, p *v1.Pod, c *v1.Container) (pod.Contribution, error)
}

// ResourceReleaser releases the exclusive resources of a pod. A pod that has none is no error.
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

// RestartRecords records, for a later agent, which restarts of the pod's containers are under way.
type RestartRecords interface {
	NoteRestarts(uid types.UID, r Restarts) error
	Restarts(uid types.UID) (Restarts, error)
}

// EvictionRecords records, for a later agent, that the pod was evicted.
type EvictionRecords interface {
	NoteEviction(uid types.UID, e podplan.EvictionRecord) error
	Eviction(uid types.UID) (e podplan.EvictionRecord, evicted bool, err error)
}

// Restarts are restarts that the runtime does not show: a container that was stopped for a restart looks like one that
// has exited by itself, and a container that was removed for a restart looks like a lost one.
type Restarts struct {
	// StoppedForRestart are IDs of containers that are stopped to be started again.
	StoppedForRestart []string `json:"recalled,omitempty"`
	// Anew are the containers that a restart of all containers removes, and the attempt as which each starts again.
	Anew map[string]int `json:"anew,omitempty"`
}
