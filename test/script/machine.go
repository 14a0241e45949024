package script

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/test/kit/placement"
)

// setMachine reads the hardware of the machine of a scenario: each number is a count per unit of the
// part before it.
func (s *Scenario) setMachine(text string) error {
	m := placement.Machine{Sockets: 1, Nodes: 1, Cores: 1, Threads: 1}
	parts := map[string]*int{
		"sockets": &m.Sockets,
		"nodes":   &m.Nodes,
		"caches":  &m.Caches,
		"cores":   &m.Cores,
		"threads": &m.Threads,
		"memory":  &m.Memory,
	}
	for _, word := range strings.Fields(text) {
		name, value, _ := strings.Cut(word, "=")
		n, err := strconv.Atoi(value)
		if err != nil || parts[name] == nil {
			return fmt.Errorf("read machine: %q", word)
		}
		*parts[name] = n
	}
	s.Machine = &m
	return nil
}

// showCPUs shows the CPUs and the memory nodes to which running containers are restricted, and whether
// their CPU time is limited.
func (r *Run) showCPUs() (string, error) {
	list, err := r.Runtime.ListContainers(context.Background(), &cri.ListContainersRequest{Filter: &cri.ContainerFilter{
		State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING}}})
	if err != nil {
		return "", err
	}
	var lines []string
	for _, c := range list.Containers {
		st, err := r.Runtime.ContainerStatus(context.Background(), &cri.ContainerStatusRequest{ContainerId: c.Id})
		if err != nil {
			return "", err
		}
		l := st.Status.GetResources().GetLinux()
		line := fmt.Sprintf("%s/%s: %s", c.Labels["io.kubernetes.pod.name"], c.Metadata.Name, l.GetCpusetCpus())
		if mems := l.GetCpusetMems(); mems != "" {
			line += " of nodes " + mems
		}
		if l.GetCpuQuota() > 0 {
			line += " limited"
		}
		lines = append(lines, line+"\n")
	}
	slices.Sort(lines)
	return strings.Join(lines, ""), nil
}
