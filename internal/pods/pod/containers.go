package pod

import (
	"fmt"
	"iter"

	v1 "k8s.io/api/core/v1"
)

// Kind is the list of the specification that a container is in.
type Kind int

// The kinds of containers. A sidecar is an init container that runs for the
// whole life of the pod.
const (
	Regular Kind = iota
	Init
	Sidecar
	Ephemeral
)

func (k Kind) String() string {
	return [...]string{"container", "init container", "sidecar", "ephemeral container"}[k]
}

// IsSidecar reports whether an init container is a restartable one (KEP-753).
func IsSidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// Containers yields every container of the pod in the order of the specification: init
// containers and sidecars, regular ones, ephemeral ones. An ephemeral container is
// converted to a Container.
func Containers(p *v1.Pod) iter.Seq2[Kind, *v1.Container] {
	return func(yield func(Kind, *v1.Container) bool) {
		for i := range p.Spec.InitContainers {
			c := &p.Spec.InitContainers[i]
			if !yield(InitKind(c), c) {
				return
			}
		}
		for i := range p.Spec.Containers {
			if !yield(Regular, &p.Spec.Containers[i]) {
				return
			}
		}
		for i := range p.Spec.EphemeralContainers {
			if !yield(Ephemeral, (*v1.Container)(&p.Spec.EphemeralContainers[i].EphemeralContainerCommon)) {
				return
			}
		}
	}
}

// InitKind is Init or Sidecar.
func InitKind(c *v1.Container) Kind {
	if IsSidecar(c) {
		return Sidecar
	}
	return Init
}

// Find looks a container up by its name, which is unique in a pod.
func Find(p *v1.Pod, name string) (Kind, *v1.Container, bool) {
	for k, c := range Containers(p) {
		if c.Name == name {
			return k, c, true
		}
	}
	return 0, nil, false
}

// FieldPath names a container inside its pod the way event readers expect it,
// such as spec.initContainers{setup}. It is empty for an unknown name.
func FieldPath(p *v1.Pod, name string) string {
	k, _, ok := Find(p, name)
	if !ok {
		return ""
	}
	list := map[Kind]string{
		Regular:   "containers",
		Init:      "initContainers",
		Sidecar:   "initContainers",
		Ephemeral: "ephemeralContainers",
	}[k]
	return fmt.Sprintf("spec.%s{%s}", list, name)
}
