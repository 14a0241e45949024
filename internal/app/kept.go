package app

import (
	"context"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"

	"keelson/internal/pods/pod"
	"keelson/internal/resources/cpu"
	"keelson/internal/resources/memory"
	"keelson/internal/runtime/cri"
)

// kept is a container that runs, with what the runtime keeps it to.
type kept struct {
	uid       types.UID
	container string
	by        *runtimeapi.LinuxContainerResources
}

// keptContainers reads what containers run by. A runtime that does not tell is an error.
func (a *agent) keptContainers(ctx context.Context) ([]kept, error) {
	running, err := a.containersThatRun(ctx)
	if err != nil {
		return nil, err
	}
	var out []kept
	for _, c := range running {
		uid := types.UID(c.GetLabels()[pod.LabelPodUID])
		if uid == "" {
			continue // nobody's pod
		}
		resp, err := a.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId()})
		if cri.IsNotFound(err) || err == nil && resp.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
			continue // it has ended meanwhile
		}
		if err != nil {
			return nil, err
		}
		by := resp.GetStatus().GetResources().GetLinux()
		if by == nil {
			return nil, fmt.Errorf("read container %s: the runtime does not tell its resources", c.GetId())
		}
		out = append(out, kept{uid, c.GetLabels()[pod.LabelContainerName], by})
	}
	return out, nil
}

func (a *agent) containersThatRun(ctx context.Context) ([]*runtimeapi.Container, error) {
	running := &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}}
	list, err := a.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: running})
	return list.GetContainers(), err
}

// podsThatRun are the pods of which containers run.
func (a *agent) podsThatRun(ctx context.Context) (map[types.UID]bool, error) {
	running, err := a.containersThatRun(ctx)
	if err != nil {
		return nil, err
	}
	out := map[types.UID]bool{}
	for _, c := range running {
		out[types.UID(c.GetLabels()[pod.LabelPodUID])] = true
	}
	return out, nil
}

// keptToCPUs are the CPUs that containers run on.
func (a *agent) keptToCPUs(ctx context.Context) ([]cpu.Kept, error) {
	all, err := a.keptContainers(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]cpu.Kept, 0, len(all))
	for _, c := range all {
		set, err := cpuset.Parse(c.by.GetCpusetCpus())
		if err != nil {
			return nil, fmt.Errorf("read CPUs of container %s of pod %s: %w", c.container, c.uid, err)
		}
		out = append(out, cpu.Kept{UID: c.uid, Container: c.container, CPUs: set, Shares: c.by.GetCpuShares()})
	}
	return out, nil
}

// keptToMemory is the memory of NUMA nodes that containers run in. Who is kept to nodes
// has a limit, and no more than that.
func (a *agent) keptToMemory(ctx context.Context) ([]memory.Kept, error) {
	all, err := a.keptContainers(ctx)
	if err != nil {
		return nil, err
	}
	var out []memory.Kept
	for _, c := range all {
		nodes, err := cpuset.Parse(c.by.GetCpusetMems()) // of the same form
		if err != nil {
			return nil, fmt.Errorf("read NUMA nodes of container %s of pod %s: %w", c.container, c.uid, err)
		}
		if nodes.IsEmpty() {
			continue
		}
		has := []memory.Held{{Kind: v1.ResourceMemory, Bytes: uint64(c.by.GetMemoryLimitInBytes()), Nodes: nodes.List()}}
		for _, l := range c.by.GetHugepageLimits() {
			if l.GetLimit() > 0 {
				// 2MB is what control groups call 2Mi.
				kind := v1.ResourceName(v1.ResourceHugePagesPrefix + strings.TrimSuffix(l.GetPageSize(), "B") + "i")
				has = append(has, memory.Held{Kind: kind, Bytes: l.GetLimit(), Nodes: nodes.List()})
			}
		}
		out = append(out, memory.Kept{UID: c.uid, Container: c.container, Held: has})
	}
	return out, nil
}
