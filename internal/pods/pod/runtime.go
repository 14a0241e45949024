package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// Runtime is the observed state of one pod in the container runtime. It is immutable.
type Runtime struct {
	Ref
	SeenAt     time.Time
	Sandboxes  []Sandbox   // newest first
	Containers []Container // newest first
}

// Sandbox is one pod sandbox as the runtime reports it.
type Sandbox struct {
	ID             string
	Attempt        uint32
	Ready          bool
	CreatedAt      time.Time
	IPs            []string // primary first; empty for host network
	HostNetwork    bool
	RuntimeHandler string
	CgroupParent   string // empty if the runtime does not report it
	Source         Source // of its pod, from its annotations
}

// State is the state of a container; it only moves down this list.
type State int

// The states of a container in the runtime.
const (
	StateUnknown State = iota
	StateCreated
	StateRunning
	StateExited
)

func (s State) String() string {
	return [...]string{"unknown", "created", "running", "exited"}[s]
}

// Container is one container instance as the runtime reports it. A container of
// the specification that was restarted has several.
type Container struct {
	ID        string
	Name      string
	SandboxID string
	Attempt   int // the restart count this instance was created with
	State     State
	Hash      string // of the specification that it was created from, from its annotation

	CreatedAt  time.Time
	StartedAt  time.Time // zero before the start
	FinishedAt time.Time // zero before the exit
	ExitCode   int32
	Reason     string // the runtime's: Completed, Error, OOMKilled
	Message    string // the runtime's, or the termination message

	Image       string // the name that the runtime reports
	ImageID     string // the runtime's id of the image
	ImageRef    string // digest reference; what status.imageID shows
	LogPath     string
	Annotations map[string]string
	Mounts      []Mount
	Resources   *v1.ResourceRequirements // actuated, as the runtime reports them; nil if it does not
	User        *v1.ContainerUser        // nil if the runtime does not report it
	StopSignal  *v1.Signal               // nil if the runtime does not report it
}

// Latest returns the newest instance of the named container.
func (r Runtime) Latest(name string) (Container, bool) {
	for _, c := range r.Containers {
		if c.Name == name {
			return c, true
		}
	}
	return Container{}, false
}

// Instances returns all instances of the named container, newest first.
func (r Runtime) Instances(name string) []Container {
	var cs []Container
	for _, c := range r.Containers {
		if c.Name == name {
			cs = append(cs, c)
		}
	}
	return cs
}

// ByID returns one container instance.
func (r Runtime) ByID(id string) (Container, bool) {
	for _, c := range r.Containers {
		if c.ID == id {
			return c, true
		}
	}
	return Container{}, false
}

// Live reports whether any container is running or in an unknown state. One that was
// created and never started is not live.
func (r Runtime) Live() bool {
	for _, c := range r.Containers {
		if c.State == StateRunning || c.State == StateUnknown {
			return true
		}
	}
	return false
}

// Empty reports whether the runtime holds nothing of the pod.
func (r Runtime) Empty() bool { return len(r.Sandboxes) == 0 && len(r.Containers) == 0 }

// Source returns the pod's source when its newest sandbox was created.
func (r Runtime) Source() Source {
	if len(r.Sandboxes) == 0 || r.Sandboxes[0].Source == "" {
		return SourceAPI
	}
	return r.Sandboxes[0].Source
}

// ReadySandbox returns the newest sandbox if it is ready.
func (r Runtime) ReadySandbox() (Sandbox, bool) {
	if len(r.Sandboxes) > 0 && r.Sandboxes[0].Ready {
		return r.Sandboxes[0], true
	}
	return Sandbox{}, false
}
