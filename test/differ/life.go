package differ

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// History is a number of lives that run at the same time, and what happens to the node between
// their acts: Between[i] comes after act i of all lives.
type History struct {
	Seed    uint64
	Lives   []*Life
	Between []string // of interludes
}

// The interludes.
const (
	nothing        = "nothing"
	restartAgent   = "restart agent"   // SIGTERM, steps of Down, start
	killAgent      = "kill agent"      // SIGKILL, steps of Down, start
	freezeAgent    = "freeze agent"    // SIGSTOP, steps of Down, SIGCONT
	restartRuntime = "restart runtime" // connections drop, the socket comes back
	loseEvents     = "lose events"     // of the runtime
	taintNode      = "taint node"      // NoExecute; pods that do not tolerate it are evicted, then it is removed
	cordonNode     = "cordon node"
	cutOff         = "cut off"           // from the API server, for the steps of Down
	cutOffLong     = "cut off, given up" // until the node controller marks the node Unknown
	pressNode      = "press node"        // its disk fills up to the soft threshold; no pod is evicted
)

// Life is a pod and all steps that are taken with it.
type Life struct {
	Name     string
	Static   bool // the pod is a manifest in the agent's directory
	Pod      *corev1.Pod
	Objects  []Object            // that are created before the pod
	Programs map[string][]string // by container: what each attempt runs, the last one for all further attempts
	Faults   []Fault
	Acts     []Act
}

// Act is what happens to a life between two interludes.
type Act struct {
	Steps []Step
	Down  []Step // in the interlude after the act, for example while the agent is down
}

// Object is a ConfigMap or a Secret of the pod's.
type Object struct {
	Secret bool
	Name   string
	Data   map[string]string
	Type   corev1.SecretType
}

// Fault makes calls to the runtime for the pod fail or take long.
type Fault struct {
	Method, Container string
	Image             string // of a pull
	Skip, Times       int
	DelayMS           int
	Message           string // of the failure; none if empty
}

// Step is one action. Which fields are used depends on the verb.
type Step struct {
	Verb      string
	Container string
	Code      int32
	Grace     int64
	Object    *Object
	Patch     json.RawMessage `json:",omitempty"` // without omitempty a copy would have "null"
}

// The verbs of steps.
const (
	create    = "create"
	remove    = "delete"      // with Grace; -1: the pod's own
	evict     = "evict"       // by the API, as a drain does; with Grace
	exit      = "exit"        // Container, Code
	oom       = "oom"         // Container
	killBox   = "killsandbox" // the pause process dies
	sick      = "sick"        // Container/probe fails from now on
	well      = "well"
	patch     = "patch"     // Patch of the pod
	status    = "status"    // Patch of the status subresource
	resize    = "resize"    // Patch of the resize subresource
	ephemeral = "ephemeral" // Patch of the ephemeralcontainers subresource
	putObject = "put"       // Object
	dropObj   = "drop"      // Object
)

func (s Step) String() string {
	var b strings.Builder
	b.WriteString(s.Verb)
	if s.Container != "" {
		b.WriteString(" " + s.Container)
	}
	switch s.Verb {
	case exit:
		fmt.Fprintf(&b, " with %d", s.Code)
	case remove, evict:
		fmt.Fprintf(&b, " within %d s", s.Grace)
	}
	if s.Object != nil {
		b.WriteString(" " + s.Object.Name)
	}
	if s.Patch != nil {
		b.WriteString(" " + string(s.Patch))
	}
	return b.String()
}

// steps are the life's steps of a kind.
func (l *Life) steps(verb string) (list []Step) {
	for _, a := range l.Acts {
		for _, s := range slices.Concat(a.Steps, a.Down) {
			if s.Verb == verb {
				list = append(list, s)
			}
		}
	}
	return list
}

// late reports whether the pod is created in the interlude after the first act.
func (l *Life) late() bool {
	return len(l.Acts) > 0 && slices.ContainsFunc(l.Acts[0].Down, func(s Step) bool { return s.Verb == create })
}

// lateObjects are the objects that steps create and that do not exist before the pod.
func (l *Life) lateObjects() (list []Object) {
	for _, s := range l.steps(putObject) {
		if !slices.ContainsFunc(l.Objects, func(o Object) bool { return o.Name == s.Object.Name }) {
			list = append(list, *s.Object)
		}
	}
	return list
}

// comesLate reports whether the object is created by a step after the pod.
func (l *Life) comesLate(o *Object) bool {
	return o != nil && slices.ContainsFunc(l.lateObjects(), func(late Object) bool { return late.Name == o.Name })
}

// program is what an attempt of a container runs.
func (l *Life) program(container string, attempt uint32) string {
	list := l.Programs[container]
	if len(list) == 0 {
		return forever
	}
	return list[min(int(attempt), len(list)-1)]
}

// alwaysTheSame makes all attempts of a container run the program of the last one.
func (l *Life) alwaysTheSame(container string) {
	if n := len(l.Programs[container]); n > 0 {
		l.Programs[container] = l.Programs[container][n-1:]
	}
}

// forever is a program that runs until it is stopped.
const forever = "sleep infinity"

// copy returns a deep copy of the life with another name.
func (l *Life) copy(name string) *Life {
	data, err := json.Marshal(l)
	if err != nil {
		panic(err) // all its fields can be encoded
	}
	// Names of objects have the life's name in them.
	text := strings.ReplaceAll(string(data), l.Name, name)
	out := &Life{}
	if err := json.Unmarshal([]byte(text), out); err != nil {
		panic(err)
	}
	// A life that is run again runs beside others with the same ports.
	for _, list := range [][]corev1.Container{out.Pod.Spec.InitContainers, out.Pod.Spec.Containers} {
		for _, c := range list {
			for i := range c.Ports {
				c.Ports[i].ContainerPort += portsOf(name)
				if c.Ports[i].HostPort != 0 {
					c.Ports[i].HostPort += portsOf(name)
				}
			}
		}
	}
	return out
}

// portsOf is the offset of the ports of a copy. Generated ports are those of the first perHistory
// lives, of which each may have 20.
func portsOf(name string) int32 {
	_, digits, _ := strings.Cut(name, "-")
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return int32(20 * (perHistory + n%300))
}

// containers are all containers of the pod, of any kind.
func containers(p *corev1.Pod) (list []corev1.Container) {
	list = append(list, p.Spec.InitContainers...)
	list = append(list, p.Spec.Containers...)
	for _, e := range p.Spec.EphemeralContainers {
		list = append(list, corev1.Container(e.EphemeralContainerCommon))
	}
	return list
}
