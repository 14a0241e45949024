package fakecri

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (r *Runtime) handlers() []string {
	return slices.Concat([]string{""}, r.opts.Handlers, r.opts.Plain)
}

// Version names the fake.
func (r *Runtime) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{
		Version: "0.1.0", RuntimeName: "fakecri", RuntimeVersion: "1.0.0", RuntimeApiVersion: "v1",
	}, nil
}

// Status reports the conditions, the runtime handlers and what they can do.
func (r *Runtime) Status(_ context.Context, req *cri.StatusRequest) (*cri.StatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	res := &cri.StatusResponse{
		Status: &cri.RuntimeStatus{},
		Features: &cri.RuntimeFeatures{
			SupplementalGroupsPolicy:  true,
			UserNamespacesHostNetwork: r.opts.UsersOnHostNetwork,
		},
	}
	for _, c := range r.conditions {
		res.Status.Conditions = append(res.Status.Conditions, proto.Clone(c).(*cri.RuntimeCondition))
	}
	for _, h := range r.handlers() {
		able := !slices.Contains(r.opts.Plain, h)
		res.RuntimeHandlers = append(res.RuntimeHandlers, &cri.RuntimeHandler{
			Name:     h,
			Features: &cri.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: able, UserNamespaces: able},
		})
	}
	if req.GetVerbose() {
		res.Info = info(map[string]any{"podCIDR": r.podCIDR})
	}
	return res, nil
}

// SetCondition changes a condition of the runtime, or adds one.
func (r *Runtime) SetCondition(kind string, ok bool, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := &cri.RuntimeCondition{Type: kind, Status: ok, Reason: reason, Message: message}
	for i, c := range r.conditions {
		if c.Type == kind {
			r.conditions[i] = next
			return
		}
	}
	r.conditions = append(r.conditions, next)
}

// RuntimeConfig returns the cgroup driver.
func (r *Runtime) RuntimeConfig(context.Context, *cri.RuntimeConfigRequest) (*cri.RuntimeConfigResponse, error) {
	if r.opts.NoRuntimeConfig {
		return nil, status.Error(codes.Unimplemented, "method RuntimeConfig not implemented")
	}
	driver := cri.CgroupDriver_CGROUPFS
	if r.opts.Systemd {
		driver = cri.CgroupDriver_SYSTEMD
	}
	return &cri.RuntimeConfigResponse{Linux: &cri.LinuxRuntimeConfiguration{CgroupDriver: driver}}, nil
}

// UpdateRuntimeConfig records the pod CIDR.
func (r *Runtime) UpdateRuntimeConfig(
	_ context.Context, req *cri.UpdateRuntimeConfigRequest,
) (*cri.UpdateRuntimeConfigResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.podCIDR = req.GetRuntimeConfig().GetNetworkConfig().GetPodCidr()
	return &cri.UpdateRuntimeConfigResponse{}, nil
}
