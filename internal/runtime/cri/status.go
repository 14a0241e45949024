package cri

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Condition is one of the runtime's statements about its health.
type Condition struct {
	OK      bool
	Reason  string
	Message string
}

// Handler is one way in which the runtime can run a pod. The default handler has
// an empty name.
type Handler struct {
	Name                    string
	RecursiveReadOnlyMounts bool
	UserNamespaces          bool
}

// Status is the runtime's health and abilities at one moment.
type Status struct {
	Runtime  Condition
	Network  Condition
	Handlers []Handler
	// SupplementalGroupsPolicy says that the runtime knows the policy Strict.
	SupplementalGroupsPolicy bool
	// UserNamespacesHostNetwork says that a pod may have both.
	UserNamespacesHostNetwork bool
}

// Status asks the runtime for its health.
func (c *Client) Status(ctx context.Context) (Status, error) {
	resp, err := call(ctx, c.timeout, c.runtime.Status, &runtimeapi.StatusRequest{}, "read runtime status", "")
	if err != nil {
		return Status{}, err
	}
	return toStatus(resp), nil
}

// toStatus reads the answer; a condition that is missing is not met.
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
