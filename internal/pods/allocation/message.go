package allocation

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// summary is the message of an event about a resize.
type summary struct {
	InitContainers []allotment `json:"initContainers,omitempty"`
	Containers     []allotment `json:"containers,omitempty"`
	Generation     int64       `json:"generation"`
	Error          string      `json:"error,omitempty"`
}

type allotment struct {
	Name      string                  `json:"name"`
	Resources v1.ResourceRequirements `json:"resources"`
}

// summarize returns the pod's resources as one line of JSON.
func summarize(p *v1.Pod, generation int64, problem string) string {
	s := summary{Generation: generation, Error: problem}
	for kind, c := range pod.Containers(p) {
		switch kind {
		case pod.Init, pod.Sidecar:
			s.InitContainers = append(s.InitContainers, allotment{c.Name, c.Resources})
		case pod.Regular:
			s.Containers = append(s.Containers, allotment{c.Name, c.Resources})
		}
	}
	b, err := json.Marshal(s)
	if err != nil { // quantities and strings always can be
		return problem
	}
	return string(b)
}
