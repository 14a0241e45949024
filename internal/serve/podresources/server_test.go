package podresources

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	podresourcesv1alpha1 "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"keelson/test/kit/parity"
)

// serve serves a node with one pod of many containers and one plain one.
func serve(t *testing.T) (*Server, *grpc.ClientConn) {
	t.Helper()
	dir, err := os.MkdirTemp("", "res") // short: the path of a socket has little room
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, Socket)
	// An agent that was killed has left its socket.
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		t.Fatal(err)
	}
	old, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	old.SetUnlinkOnClose(false)
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	always := v1.ContainerRestartPolicyAlways
	full := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "full", Namespace: "b", UID: "1"},
		Spec: v1.PodSpec{
			InitContainers: []v1.Container{{Name: "init"}, {Name: "side", RestartPolicy: &always}},
			Containers:     []v1.Container{{Name: "main"}},
		},
	}
	plain := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "plain", Namespace: "a", UID: "2"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main"}}},
	}
	ended := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "ended", Namespace: "a", UID: "3"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main"}}},
	}
	has := map[string]Resources{
		"1/init": {Devices: []Device{{"example.com/gpu", "a", nil}}, CPUs: []int{9}},
		"1/side": {Devices: []Device{{"example.com/gpu", "a", nil}}},
		"1/main": {
			Devices: []Device{{"example.com/gpu", "b", []int{0}}, {"example.com/gpu", "c", nil}},
			CPUs:    []int{2, 3},
			Memory:  []Memory{{"memory", 1 << 30, []int{0, 1}}},
			Claims: []Claim{{"b", "gpu",
				[]ClaimDevice{{"drv", "pool", "dev", "", []string{"x/y=1", "x/y=2"}},
					{"drv", "pool", "part", "s", nil}}}},
		},
	}
	s := New(Config{
		Socket: socket,
		Log:    slog.New(slog.DiscardHandler),
		Pods:   func() []*v1.Pod { return []*v1.Pod{full, plain} },
		All:    func() []*v1.Pod { return []*v1.Pod{ended, full, plain} },
		Pod: func(namespace, name string) (*v1.Pod, bool) {
			if namespace == "b" && name == "full" {
				return full, true
			}
			return nil, false
		},
		Container: func(uid types.UID, name string) Resources { return has[string(uid)+"/"+name] },
		Node: func() Resources {
			return Resources{
				Devices: []Device{{"example.com/gpu", "a", nil}, {"example.com/gpu", "b", []int{0}}},
				CPUs:    []int{1, 2, 3},
				Memory:  []Memory{{"hugepages-2Mi", 4 << 20, []int{1}}},
			}
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		conn.Close()
	})
	return s, conn
}

func TestPodResources(t *testing.T) {
	parity.Proves(t, "RES-69", "RES-70")
	s, conn := serve(t)
	client := podresourcesv1.NewPodResourcesListerClient(conn)
	at := func(nodes ...int64) *podresourcesv1.TopologyInfo {
		info := &podresourcesv1.TopologyInfo{}
		for _, n := range nodes {
			info.Nodes = append(info.Nodes, &podresourcesv1.NUMANode{ID: n})
		}
		return info
	}
	full := &podresourcesv1.PodResources{
		Name:      "full",
		Namespace: "b",
		Containers: []*podresourcesv1.ContainerResources{
			{
				Name: "side",
				Devices: []*podresourcesv1.ContainerDevices{{
					ResourceName: "example.com/gpu",
					DeviceIds:    []string{"a"},
				}},
			},
			{
				Name:   "main",
				CpuIds: []int64{2, 3},
				Memory: []*podresourcesv1.ContainerMemory{{MemoryType: "memory", Size: 1 << 30, Topology: at(0, 1)}},
				Devices: []*podresourcesv1.ContainerDevices{{
					ResourceName: "example.com/gpu",
					DeviceIds:    []string{"b"},
					Topology:     at(0),
				}, {ResourceName: "example.com/gpu", DeviceIds: []string{"c"}}},
				DynamicResources: []*podresourcesv1.DynamicResource{{
					ClaimName:      "gpu",
					ClaimNamespace: "b",
					ClaimResources: []*podresourcesv1.ClaimResource{
						{
							DriverName: "drv",
							PoolName:   "pool",
							DeviceName: "dev",
							CdiDevices: []*podresourcesv1.CDIDevice{{Name: "x/y=1"}, {Name: "x/y=2"}},
						},
						{DriverName: "drv", PoolName: "pool", DeviceName: "part", ShareId: proto.String("s")}},
				}},
			},
		},
	}
	same := func(what string, got, want proto.Message, err error) {
		t.Helper()
		if err != nil || !proto.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", what, got, err, want)
		}
	}
	list, err := client.List(t.Context(), &podresourcesv1.ListPodResourcesRequest{})
	same("list", list, &podresourcesv1.ListPodResourcesResponse{PodResources: []*podresourcesv1.PodResources{
		{Name: "plain", Namespace: "a", Containers: []*podresourcesv1.ContainerResources{{Name: "main"}}}, full}}, err)
	got, err := client.Get(t.Context(), &podresourcesv1.GetPodResourcesRequest{PodNamespace: "b", PodName: "full"})
	same("get", got, &podresourcesv1.GetPodResourcesResponse{PodResources: full}, err)
	_, err = client.Get(t.Context(), &podresourcesv1.GetPodResourcesRequest{PodNamespace: "b", PodName: "none"})
	if st := status.Convert(err); st.Code() != codes.Unknown || st.Message() != "pod none in namespace b not found" {
		t.Errorf("get of an absent pod: %v", err)
	}
	there, err := client.GetAllocatableResources(t.Context(), &podresourcesv1.AllocatableResourcesRequest{})
	same("allocatable", there, &podresourcesv1.AllocatableResourcesResponse{
		CpuIds: []int64{1, 2, 3},
		Memory: []*podresourcesv1.ContainerMemory{{MemoryType: "hugepages-2Mi", Size: 4 << 20, Topology: at(1)}},
		Devices: []*podresourcesv1.ContainerDevices{{
			ResourceName: "example.com/gpu",
			DeviceIds:    []string{"a"},
		}, {ResourceName: "example.com/gpu", DeviceIds: []string{"b"}, Topology: at(0)}},
	}, err)
	older, err := podresourcesv1alpha1.NewPodResourcesListerClient(conn).List(t.Context(),
		&podresourcesv1alpha1.ListPodResourcesRequest{})
	same("list v1alpha1", older,
		&podresourcesv1alpha1.ListPodResourcesResponse{PodResources: []*podresourcesv1alpha1.PodResources{
			{Name: "ended", Namespace: "a", Containers: []*podresourcesv1alpha1.ContainerResources{{Name: "main"}}},
			{Name: "plain", Namespace: "a", Containers: []*podresourcesv1alpha1.ContainerResources{{Name: "main"}}},
			{
				Name:      "full",
				Namespace: "b",
				Containers: []*podresourcesv1alpha1.ContainerResources{{
					Name: "main",
					Devices: []*podresourcesv1alpha1.ContainerDevices{
						{
							ResourceName: "example.com/gpu",
							DeviceIds:    []string{"b"},
						}, {ResourceName: "example.com/gpu", DeviceIds: []string{"c"}}},
				}},
			},
		}}, err)

	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(s)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			if len(m.Label) != 1 || m.Label[0].GetName() != "server_api_version" {
				t.Errorf("%s has labels %v", f.GetName(), m.Label)
			}
			counts[f.GetName()+" "+m.Label[0].GetValue()] = m.Counter.GetValue()
		}
	}
	for name, want := range map[string]float64{
		"kubelet_pod_resources_endpoint_requests_total v1":           4,
		"kubelet_pod_resources_endpoint_requests_total v1alpha1":     1,
		"kubelet_pod_resources_endpoint_requests_list v1":            1,
		"kubelet_pod_resources_endpoint_requests_get v1":             2,
		"kubelet_pod_resources_endpoint_errors_get v1":               1,
		"kubelet_pod_resources_endpoint_requests_get_allocatable v1": 1,
	} {
		if counts[name] != want {
			t.Errorf("%s is %v, want %v", name, counts[name], want)
		}
	}
}

// Clients share a rate limit of 100 calls per second, with a burst of 10.
func TestRateLimit(t *testing.T) {
	parity.Proves(t, "RES-67")
	s, conn := serve(t)
	if Socket != "pod-resources/kubelet.sock" {
		t.Errorf("it listens at %s below the root directory", Socket)
	}
	client := podresourcesv1.NewPodResourcesListerClient(conn)
	if s.limit.Limit() != 100 || s.limit.Burst() != 10 {
		t.Errorf("%v calls a second, %d at once", s.limit.Limit(), s.limit.Burst())
	}
	s.limit.SetLimit(0)
	for i := range 15 {
		_, err := client.List(t.Context(), &podresourcesv1.ListPodResourcesRequest{})
		want := codes.OK
		if i >= 10 {
			want = codes.ResourceExhausted
		}
		if status.Code(err) != want {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if _, err := podresourcesv1alpha1.NewPodResourcesListerClient(conn).List(t.Context(),
		&podresourcesv1alpha1.ListPodResourcesRequest{}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("the older service: %v", err)
	}
}
