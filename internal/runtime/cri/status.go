package cri

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Condition is one condition of the runtime's status.
type Condition struct {
	OK      bool
	Reason  string
	Message string
}

// Handler is a runtime handler. The default handler has an empty name.
type Handler struct {
	Name                    string
	RecursiveReadOnlyMounts bool
	UserNamespaces          bool
}

// Status is the status of the runtime: conditions, handlers and features.
type Status struct {
	Runtime  Condition
	Network  Condition
	Handlers []Handler
	// SupplementalGroupsPolicy is set if the runtime supports the policy Strict.
	SupplementalGroupsPolicy bool
	// UserNamespacesHostNetwork is set if a pod can have both a user namespace and the host
	// network.
	UserNamespacesHostNetwork bool
}

// Handler returns the runtime handler of that name.
func (s Status) Handler(name string) (h Handler, known bool) {
	for _, h := range s.Handlers {
		if h.Name == name {
			return h, true
		}
	}
	return Handler{}, false
}

// Status returns the status of the runtime.
func (c *Client) Status(ctx context.Context) (Status, error) {
	resp, err := call(ctx, c.timeout, c.runtime.Status, &runtimeapi.StatusRequest{}, "read runtime status", "")
	if err != nil {
		return Status{}, err
	}
	return toStatus(resp), nil
}

// toStatus converts the response. A missing condition counts as not met.
func toStatus(resp *runtimeapi.StatusResponse) Status {
	missing := Condition{Reason: "Missing", Message: "the runtime does not report this condition"}
	s := Status{
		Runtime:                   missing,
		Network:                   missing,
		SupplementalGroupsPolicy:  resp.GetFeatures().GetSupplementalGroupsPolicy(),
		UserNamespacesHostNetwork: resp.GetFeatures().GetUserNamespacesHostNetwork(),
	}
	for _, c := range resp.GetStatus().GetConditions() {
		cond := Condition{OK: c.GetStatus(), Reason: c.GetReason(), Message: c.GetMessage()}
		switch c.GetType() {
		case runtimeapi.RuntimeReady:
			s.Runtime = cond
		case runtimeapi.NetworkReady:
			s.Network = cond
		}
	}
	for _, h := range resp.GetRuntimeHandlers() {
		s.Handlers = append(s.Handlers, Handler{
			Name:                    h.GetName(),
			RecursiveReadOnlyMounts: h.GetFeatures().GetRecursiveReadOnlyMounts(),
			UserNamespaces:          h.GetFeatures().GetUserNamespaces(),
		})
	}
	return s
}
