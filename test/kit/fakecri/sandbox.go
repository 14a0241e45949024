package fakecri

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"sort"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sandbox moves ready → not ready → removed.
type sandbox struct {
	id        string
	config    *cri.PodSandboxConfig
	handler   string
	state     cri.PodSandboxState
	createdAt int64
	addr      netip.Addr // invalid on the host network and once stopped

	containers []*container // oldest first
}

func (s *sandbox) key() string {
	return s.config.GetMetadata().GetNamespace() + "/" + s.config.GetMetadata().GetName()
}

func (s *sandbox) hostNetwork() bool {
	return s.config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() == cri.NamespaceMode_NODE
}

// sandboxName is what must be unique among sandboxes.
func sandboxName(m *cri.PodSandboxMetadata, attempt uint32) string {
	return strings.Join([]string{m.GetName(), m.GetNamespace(), m.GetUid(), itoa(attempt)}, "_")
}

// RunPodSandbox creates a sandbox that is ready and has its address.
func (r *Runtime) RunPodSandbox(_ context.Context, req *cri.RunPodSandboxRequest) (*cri.RunPodSandboxResponse, error) {
	cfg := req.GetConfig()
	r.mu.Lock()
	defer r.mu.Unlock()
	if cfg.GetMetadata() == nil {
		return nil, errState("sandbox config must include metadata")
	}
	if h := req.GetRuntimeHandler(); h != "" && !slices.Contains(r.handlers(), h) {
		return nil, errState("unable to get OCI runtime for sandbox: no runtime for %q is configured", h)
	}
	name := sandboxName(cfg.GetMetadata(), cfg.GetMetadata().GetAttempt())
	if other, taken := r.names[name]; taken {
		return nil, errState("failed to reserve sandbox name %q: name %q is reserved for %q", name, name, other)
	}
	s := &sandbox{
		id:      r.newIDLocked("sandbox"),
		config:  proto.Clone(cfg).(*cri.PodSandboxConfig),
		handler: req.GetRuntimeHandler(),
		state:   cri.PodSandboxState_SANDBOX_READY,
	}
	if !s.hostNetwork() {
		addr, err := r.takeAddressLocked()
		if err != nil {
			return nil, err
		}
		s.addr = addr
	}
	s.createdAt = r.nowLocked()
	r.sandboxes[s.id] = s
	r.names[name] = s.id
	r.emitLocked(s.id, s.id, cri.ContainerEventType_CONTAINER_CREATED_EVENT)
	r.emitLocked(s.id, s.id, cri.ContainerEventType_CONTAINER_STARTED_EVENT)
	return &cri.RunPodSandboxResponse{PodSandboxId: s.id}, nil
}

// StopPodSandbox kills the containers in the sandbox and releases its address.
func (r *Runtime) StopPodSandbox(
	_ context.Context, req *cri.StopPodSandboxRequest,
) (*cri.StopPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.sandboxLocked(req.GetPodSandboxId())
	switch {
	case ok:
		r.stopSandboxLocked(s)
	case r.opts.Old:
		return nil, errNotFound("an error occurred when try to find sandbox %q", req.GetPodSandboxId())
	}
	return &cri.StopPodSandboxResponse{}, nil
}

func (r *Runtime) stopSandboxLocked(s *sandbox) {
	for _, c := range s.containers {
		if c.state == cri.ContainerState_CONTAINER_RUNNING {
			r.exitLocked(c, 137, "", "")
		}
	}
	if s.addr.IsValid() {
		delete(r.addresses, s.addr)
		s.addr = netip.Addr{}
	}
	if s.state == cri.PodSandboxState_SANDBOX_READY {
		s.state = cri.PodSandboxState_SANDBOX_NOTREADY
		r.emitLocked(s.id, s.id, cri.ContainerEventType_CONTAINER_STOPPED_EVENT)
	}
}

// RemovePodSandbox stops the sandbox if need be and drops it together with
// its containers.
func (r *Runtime) RemovePodSandbox(
	_ context.Context, req *cri.RemovePodSandboxRequest,
) (*cri.RemovePodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.sandboxLocked(req.GetPodSandboxId())
	if !ok {
		return &cri.RemovePodSandboxResponse{}, nil
	}
	r.stopSandboxLocked(s)
	for len(s.containers) > 0 {
		r.removeContainerLocked(s.containers[0])
	}
	r.emitLocked(s.id, s.id, cri.ContainerEventType_CONTAINER_DELETED_EVENT)
	delete(r.sandboxes, s.id)
	delete(r.names, sandboxName(s.config.GetMetadata(), s.config.GetMetadata().GetAttempt()))
	return &cri.RemovePodSandboxResponse{}, nil
}

// PodSandboxStatus returns the status of one sandbox.
func (r *Runtime) PodSandboxStatus(
	_ context.Context, req *cri.PodSandboxStatusRequest,
) (*cri.PodSandboxStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.sandboxLocked(req.GetPodSandboxId())
	if !ok {
		return nil, errNotFound("an error occurred when try to find sandbox")
	}
	res := &cri.PodSandboxStatusResponse{Status: r.sandboxStatusLocked(s)}
	if !r.opts.NoEvents {
		// Runtimes with events add the containers, so that one call returns the
		// complete status of a pod.
		res.ContainersStatuses = r.containerStatusesLocked(s)
		res.Timestamp = r.nowLocked()
	}
	if req.GetVerbose() {
		res.Info = info(map[string]any{"pid": pid(s.id), "config": s.config, "runtimeHandler": s.handler})
	}
	return res, nil
}

func (r *Runtime) sandboxStatusLocked(s *sandbox) *cri.PodSandboxStatus {
	st := &cri.PodSandboxStatus{
		Id:        s.id,
		Metadata:  s.config.GetMetadata(),
		State:     s.state,
		CreatedAt: s.createdAt,
		Network:   &cri.PodSandboxNetworkStatus{},
		Linux: &cri.LinuxPodSandboxStatus{
			Namespaces: &cri.Namespace{Options: s.config.GetLinux().GetSecurityContext().GetNamespaceOptions()},
		},
		Labels:         s.config.GetLabels(),
		Annotations:    s.config.GetAnnotations(),
		RuntimeHandler: s.handler,
	}
	if s.addr.IsValid() {
		st.Network.Ip = s.addr.String()
	}
	return proto.Clone(st).(*cri.PodSandboxStatus)
}

// ListPodSandbox lists sandboxes that match the filter.
func (r *Runtime) ListPodSandbox(
	_ context.Context, req *cri.ListPodSandboxRequest,
) (*cri.ListPodSandboxResponse, error) {
	return &cri.ListPodSandboxResponse{Items: r.listSandboxes(req.GetFilter())}, nil
}

// StreamPodSandboxes is ListPodSandbox in several messages.
func (r *Runtime) StreamPodSandboxes(
	req *cri.StreamPodSandboxesRequest, s cri.RuntimeService_StreamPodSandboxesServer,
) error {
	return sendChunks(r, r.listSandboxes(req.GetFilter()), func(items []*cri.PodSandbox) error {
		return s.Send(&cri.StreamPodSandboxesResponse{PodSandboxes: items})
	})
}

func (r *Runtime) listSandboxes(f *cri.PodSandboxFilter) []*cri.PodSandbox {
	r.mu.Lock()
	defer r.mu.Unlock()
	var items []*cri.PodSandbox
	for _, s := range r.sortedSandboxesLocked() {
		if !matchID(f.GetId(), s.id) || !matchLabels(f.GetLabelSelector(), s.config.GetLabels()) ||
			f.GetState() != nil && f.GetState().GetState() != s.state {
			continue
		}
		items = append(items, proto.Clone(&cri.PodSandbox{
			Id: s.id, Metadata: s.config.GetMetadata(), State: s.state, CreatedAt: s.createdAt,
			Labels: s.config.GetLabels(), Annotations: s.config.GetAnnotations(), RuntimeHandler: s.handler,
		}).(*cri.PodSandbox))
	}
	return items
}

// UpdatePodSandboxResources records the pod-level resources in the sandbox's
// configuration.
func (r *Runtime) UpdatePodSandboxResources(
	_ context.Context, req *cri.UpdatePodSandboxResourcesRequest,
) (*cri.UpdatePodSandboxResourcesResponse, error) {
	if r.opts.Old {
		return nil, status.Error(codes.Unimplemented,
			"unknown method UpdatePodSandboxResources for service runtime.v1.RuntimeService")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.sandboxLocked(req.GetPodSandboxId())
	if !ok {
		return nil, errNotFound("failed to find sandbox id %q", req.GetPodSandboxId())
	}
	if s.config.Linux == nil {
		s.config.Linux = &cri.LinuxPodSandboxConfig{}
	}
	s.config.Linux.Overhead = mergeResources(s.config.Linux.Overhead, req.GetOverhead())
	s.config.Linux.Resources = mergeResources(s.config.Linux.Resources, req.GetResources())
	return &cri.UpdatePodSandboxResourcesResponse{}, nil
}

// sandboxLocked finds a sandbox by its id or a prefix that only one has.
func (r *Runtime) sandboxLocked(id string) (*sandbox, bool) { return byID(r.sandboxes, id) }

func byID[T any](m map[string]*T, id string) (*T, bool) {
	if v, ok := m[id]; ok || id == "" {
		return v, ok
	}
	var found *T
	for k, v := range m {
		if strings.HasPrefix(k, id) {
			if found != nil {
				return nil, false
			}
			found = v
		}
	}
	return found, found != nil
}

// sortedSandboxesLocked orders by id: the order is the same in every run, and has no
// meaning, like that of a real runtime.
func (r *Runtime) sortedSandboxesLocked() []*sandbox {
	list := make([]*sandbox, 0, len(r.sandboxes))
	for _, s := range r.sandboxes {
		list = append(list, s)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].id < list[j].id })
	return list
}

func matchID(want, id string) bool { return want == "" || strings.HasPrefix(id, want) }

func matchLabels(want, have map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// pid makes up a process ID; it is always the same for an id.
func pid(id string) int {
	n := 0
	for _, ch := range id[:8] {
		n = (n*16 + int(ch)) % 4_000_000
	}
	return n + 1000
}

// info renders the verbose part of a status answer.
func info(v map[string]any) map[string]string {
	text, err := json.Marshal(v)
	if err != nil {
		text = []byte(`{"error":"` + err.Error() + `"}`)
	}
	return map[string]string{"info": string(text)}
}
