package podresources

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	podresourcesv1alpha1 "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"keelson/internal/pods/pod"
)

// v1Server implements the service v1.
type v1Server struct {
	podresourcesv1.UnimplementedPodResourcesListerServer
	*Server
}

// List returns the resources of the pods that use the node.
func (s v1Server) List(
	context.Context, *podresourcesv1.ListPodResourcesRequest,
) (*podresourcesv1.ListPodResourcesResponse, error) {
	s.metrics.calls.WithLabelValues(versionV1).Inc()
	s.metrics.list.WithLabelValues(versionV1).Inc()
	out := &podresourcesv1.ListPodResourcesResponse{}
	for _, p := range inOrder(s.cfg.Pods()) {
		out.PodResources = append(out.PodResources, s.pod(p))
	}
	return out, nil
}

// Get returns the resources of one pod.
func (s v1Server) Get(
	_ context.Context, r *podresourcesv1.GetPodResourcesRequest,
) (*podresourcesv1.GetPodResourcesResponse, error) {
	s.metrics.calls.WithLabelValues(versionV1).Inc()
	s.metrics.get.WithLabelValues(versionV1).Inc()
	p, ok := s.cfg.Pod(r.PodNamespace, r.PodName)
	if !ok {
		s.metrics.getFails.WithLabelValues(versionV1).Inc()
		return nil, fmt.Errorf("pod %s in namespace %s not found", r.PodName, r.PodNamespace)
	}
	return &podresourcesv1.GetPodResourcesResponse{PodResources: s.pod(p)}, nil
}

// GetAllocatableResources returns the allocatable resources of the node.
func (s v1Server) GetAllocatableResources(
	context.Context, *podresourcesv1.AllocatableResourcesRequest,
) (*podresourcesv1.AllocatableResourcesResponse, error) {
	s.metrics.calls.WithLabelValues(versionV1).Inc()
	s.metrics.allocatable.WithLabelValues(versionV1).Inc()
	node := s.cfg.Node()
	return &podresourcesv1.AllocatableResourcesResponse{
		Devices: devices(node.Devices),
		CpuIds:  numbers(node.CPUs),
		Memory:  memory(node.Memory),
	}, nil
}

// inOrder sorts pods by namespace and name.
func inOrder(pods []*v1.Pod) []*v1.Pod {
	pods = slices.Clone(pods)
	slices.SortFunc(pods, func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return pods
}

// pod converts a pod with its sidecars and regular containers. Init containers are left out.
func (s *Server) pod(p *v1.Pod) *podresourcesv1.PodResources {
	out := &podresourcesv1.PodResources{Name: p.Name, Namespace: p.Namespace}
	for kind, c := range pod.Containers(p) {
		if kind != pod.Sidecar && kind != pod.Regular {
			continue
		}
		g := s.cfg.Container(p.UID, c.Name)
		out.Containers = append(out.Containers, &podresourcesv1.ContainerResources{
			Name:             c.Name,
			Devices:          devices(g.Devices),
			CpuIds:           numbers(g.CPUs),
			Memory:           memory(g.Memory),
			DynamicResources: claims(g.Claims),
		})
	}
	return out
}

// devices returns an entry for each device.
func devices(of []Device) (out []*podresourcesv1.ContainerDevices) {
	for _, d := range of {
		out = append(out, &podresourcesv1.ContainerDevices{
			ResourceName: d.Resource,
			DeviceIds:    []string{d.ID},
			Topology:     topology(d.Nodes),
		})
	}
	return out
}

func memory(of []Memory) (out []*podresourcesv1.ContainerMemory) {
	for _, m := range of {
		out = append(out, &podresourcesv1.ContainerMemory{
			MemoryType: m.Type,
			Size:       m.Bytes,
			Topology:   topology(m.Nodes),
		})
	}
	return out
}

func claims(of []Claim) (out []*podresourcesv1.DynamicResource) {
	for _, c := range of {
		one := &podresourcesv1.DynamicResource{ClaimName: c.Name, ClaimNamespace: c.Namespace}
		for _, d := range c.Devices {
			dev := &podresourcesv1.ClaimResource{DriverName: d.Driver, PoolName: d.Pool, DeviceName: d.Name}
			if d.Share != "" {
				dev.ShareId = &d.Share
			}
			for _, id := range d.CDI {
				dev.CdiDevices = append(dev.CdiDevices, &podresourcesv1.CDIDevice{Name: id})
			}
			one.ClaimResources = append(one.ClaimResources, dev)
		}
		out = append(out, one)
	}
	return out
}

// topology returns nil if no NUMA node is known.
func topology(nodes []int) *podresourcesv1.TopologyInfo {
	if len(nodes) == 0 {
		return nil
	}
	t := &podresourcesv1.TopologyInfo{}
	for _, n := range nodes {
		t.Nodes = append(t.Nodes, &podresourcesv1.NUMANode{ID: int64(n)})
	}
	return t
}

func numbers(of []int) (out []int64) {
	for _, n := range of {
		out = append(out, int64(n))
	}
	return out
}

// v1alpha1Server implements the service v1alpha1, which has the devices of regular containers only.
type v1alpha1Server struct {
	podresourcesv1alpha1.UnimplementedPodResourcesListerServer
	*Server
}

// List returns all pods, including terminated and rejected ones.
func (s v1alpha1Server) List(
	context.Context, *podresourcesv1alpha1.ListPodResourcesRequest,
) (*podresourcesv1alpha1.ListPodResourcesResponse, error) {
	s.metrics.calls.WithLabelValues(versionAlpha).Inc()
	out := &podresourcesv1alpha1.ListPodResourcesResponse{}
	for _, p := range inOrder(s.cfg.All()) {
		one := &podresourcesv1alpha1.PodResources{Name: p.Name, Namespace: p.Namespace}
		for i := range p.Spec.Containers {
			c := &podresourcesv1alpha1.ContainerResources{Name: p.Spec.Containers[i].Name}
			for _, d := range s.cfg.Container(p.UID, c.Name).Devices {
				c.Devices = append(c.Devices, &podresourcesv1alpha1.ContainerDevices{
					ResourceName: d.Resource,
					DeviceIds:    []string{d.ID},
				})
			}
			one.Containers = append(one.Containers, c)
		}
		out.PodResources = append(out.PodResources, one)
	}
	return out, nil
}
