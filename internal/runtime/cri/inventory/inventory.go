package inventory

import (
	"context"
	"fmt"
	"log/slog"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/runtime/cri"
)

// Container is a running container with the resources that the runtime enforces.
type Container struct {
	UID       types.UID
	Name      string
	Resources *runtimeapi.LinuxContainerResources
}

// Reader reads from the runtime.
type Reader struct {
	Runtime *cri.Client
	Log     *slog.Logger
}

// Containers returns the running containers of pods. It fails if the runtime does not report their resources.
func (r Reader) Containers(ctx context.Context) ([]Container, error) {
	running, err := r.running(ctx)
	if err != nil {
		return nil, err
	}
	var out []Container
	for _, c := range running {
		uid := types.UID(c.GetLabels()[pod.LabelPodUID])
		if uid == "" {
			continue // does not belong to a pod
		}
		resp, err := r.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId()})
		state := resp.GetStatus().GetState()
		if cri.IsNotFound(err) || err == nil && state != runtimeapi.ContainerState_CONTAINER_RUNNING {
			continue // exited in the meantime
		}
		if err != nil {
			return nil, err
		}
		resources := resp.GetStatus().GetResources().GetLinux()
		if resources == nil {
			return nil, fmt.Errorf("read container %s: the runtime does not report its resources", c.GetId())
		}
		out = append(out, Container{UID: uid, Name: c.GetLabels()[pod.LabelContainerName], Resources: resources})
	}
	return out, nil
}

func (r Reader) running(ctx context.Context) ([]*runtimeapi.Container, error) {
	list, err := r.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{
			State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
		},
	})
	return list.GetContainers(), err
}

// Pods returns the pods with running containers.
func (r Reader) Pods(ctx context.Context) (map[types.UID]bool, error) {
	running, err := r.running(ctx)
	if err != nil {
		return nil, err
	}
	out := map[types.UID]bool{}
	for _, c := range running {
		if uid := types.UID(c.GetLabels()[pod.LabelPodUID]); uid != "" { // belongs to a pod
			out[uid] = true
		}
	}
	return out, nil
}

// Owners returns a function that finds pod and name of a container by its ID. The containers are listed at the first
// call of that function.
func (r Reader) Owners(ctx context.Context) func(id string) (uid types.UID, container string, known bool) {
	var all map[string]*runtimeapi.Container
	return func(id string) (types.UID, string, bool) {
		if all == nil {
			all = map[string]*runtimeapi.Container{}
			resp, err := r.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
			if err != nil {
				r.Log.Warn("failed to list containers, owners of CPUs in an old state file are unknown", "err", err)
			}
			for _, c := range resp.GetContainers() {
				all[c.Id] = c
			}
		}
		c, known := all[id]
		return types.UID(c.GetLabels()[pod.LabelPodUID]), c.GetLabels()[pod.LabelContainerName], known
	}
}

// UserNamespace returns the range of host user IDs of a pod's sandbox.
func (r Reader) UserNamespace(ctx context.Context, uid types.UID) (first uint32, count uint64, found bool) {
	list, err := r.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{
		Filter: &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{pod.LabelPodUID: string(uid)}},
	})
	if err != nil {
		r.Log.Error("failed to list sandboxes for user namespace of pod", "podUID", uid, "err", err)
		return 0, 0, false
	}
	for _, s := range list.GetItems() {
		st, err := r.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.Id})
		if err != nil {
			r.Log.Error("failed to get sandbox status for user namespace of pod", "podUID", uid, "err", err)
			continue
		}
		ids := st.GetStatus().GetLinux().GetNamespaces().GetOptions().GetUsernsOptions().GetUids()
		if len(ids) == 1 {
			return ids[0].HostId, uint64(ids[0].Length), true
		}
	}
	return 0, 0, false
}
