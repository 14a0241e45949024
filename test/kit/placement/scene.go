package placement

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// Scene is one machine, one configuration, and what happens.
type Scene struct {
	Name    string
	Machine Machine
	Config  Config
	Steps   []Step
	// Start is why the agent did not start; empty if it did.
	Start string `json:",omitempty"`
}

// Config is the configuration of the agent, with the names of its configuration file.
type Config struct {
	CPU             string            `json:"cpuManagerPolicy,omitempty"`
	CPUOptions      map[string]string `json:"cpuManagerPolicyOptions,omitempty"`
	ReservedCPUs    string            `json:"reservedSystemCPUs,omitempty"`
	KubeReserved    map[string]string `json:"kubeReserved,omitempty"`
	Memory          string            `json:"memoryManagerPolicy,omitempty"`
	ReservedMemory  map[int]string    `json:"reservedMemory,omitempty"` // of each node; huge pages are not kept
	Topology        string            `json:"topologyManagerPolicy,omitempty"`
	TopologyOptions map[string]string `json:"topologyManagerPolicyOptions,omitempty"`
	Scope           string            `json:"topologyManagerScope,omitempty"`
	Gates           map[string]bool   `json:"featureGates,omitempty"`
}

// Step adds or removes a pod. The other fields are the state after that.
type Step struct {
	Add    *Pod   `json:",omitempty"`
	Remove string `json:",omitempty"`

	Reason, Message string                     `json:",omitempty"` // of a pod that was refused
	CPUs            json.RawMessage            `json:",omitempty"` // the state file; of pods that run
	Memory          json.RawMessage            `json:",omitempty"` // likewise
	Containers      map[string]ContainerLimits `json:",omitempty"` // of the pod that was added
}

// ContainerLimits are the limits of a container that the runtime got.
type ContainerLimits struct {
	CPUs, Mems string
	Quota      int64
}

// Pod is a Guaranteed pod; its name is its UID.
type Pod struct {
	Name           string
	Init, Sidecars []Container `json:",omitempty"` // sidecars come first
	Containers     []Container
	Loose          bool `json:",omitempty"` // without limits: the pod is Burstable
}

// Container requests CPUs and memory. Its name is unique in the pod.
type Container struct {
	Name, CPU, Memory string
	HugePages         string `json:",omitempty"` // of 2 MiB
}

// Spec is the pod as the API has it.
func (p *Pod) Spec() *v1.Pod {
	out := &v1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: "default", UID: types.UID(p.Name)},
	}
	out.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0)
	for _, c := range p.Sidecars {
		spec := c.spec(p.Loose)
		spec.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
		out.Spec.InitContainers = append(out.Spec.InitContainers, spec)
	}
	for _, c := range p.Init {
		spec := c.spec(p.Loose)
		spec.Command = []string{"sh", "-c", "exit 0"}
		out.Spec.InitContainers = append(out.Spec.InitContainers, spec)
	}
	for _, c := range p.Containers {
		out.Spec.Containers = append(out.Spec.Containers, c.spec(p.Loose))
	}
	return out
}

func (c Container) spec(loose bool) v1.Container {
	list := v1.ResourceList{v1.ResourceCPU: resource.MustParse(c.CPU), v1.ResourceMemory: resource.MustParse(c.Memory)}
	if c.HugePages != "" {
		list["hugepages-2Mi"] = resource.MustParse(c.HugePages)
	}
	out := v1.Container{
		Name:            c.Name,
		Image:           "app:1",
		ImagePullPolicy: v1.PullIfNotPresent,
		Resources:       v1.ResourceRequirements{Requests: list, Limits: list.DeepCopy()},
	}
	if loose {
		out.Resources.Limits = nil
	}
	return out
}

// Load reads the scenes that were recorded in a directory.
func Load(dir string) ([]Scene, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("no scenes in %s", dir)
	}
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	var out []Scene
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		var s Scene
		if err := json.Unmarshal(b, &s); err != nil {
			return nil, fmt.Errorf("read scene %s: %w", f, err)
		}
		out = append(out, s)
	}
	return out, nil
}
