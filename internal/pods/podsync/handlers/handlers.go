package handlers

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/api/watch"
	"keelson/internal/pods/pod"
	"keelson/internal/pods/status"
	"keelson/internal/resources/userns"
	"keelson/internal/runtime/cri"
)

// Node is what the runtime last reported to the node.
type Node interface {
	Runtime() cri.Status
	// RuntimeAnswered is closed when the runtime has reported once.
	RuntimeAnswered() <-chan struct{}
}

// Handlers are what the runtime can do for a pod, by its RuntimeClass.
type Handlers struct {
	Classes *watch.RuntimeClasses
	Node    Node
	Users   *userns.Allocator
}

// RecursiveReadOnly reports whether the pod's handler can mount volumes read-only with all mounts below them.
func (h Handlers) RecursiveReadOnly(p *v1.Pod) bool {
	name, err := h.Classes.Handler(p)
	if err != nil {
		return false
	}
	handler, _ := h.Node.Runtime().Handler(name)
	return handler.RecursiveReadOnlyMounts
}

// ShownRecursive is RecursiveReadOnly for statuses. Until the runtime has reported it, the result is what the stored
// status of the pod shows.
func (h Handlers) ShownRecursive(p *v1.Pod) bool {
	select {
	case <-h.Node.RuntimeAnswered():
		return h.RecursiveReadOnly(p)
	default:
		return status.ShowsRecursiveReadOnly(p)
	}
}

// UserNamespace returns the user namespace of a pod with hostUsers: false.
func (h Handlers) UserNamespace(p *v1.Pod) (*runtimeapi.UserNamespace, error) {
	name, err := h.Classes.Handler(p)
	if err != nil {
		return nil, err
	}
	handler, known := h.Node.Runtime().Handler(name)
	if !handler.UserNamespaces {
		return nil, noUserNamespaces(name, known || len(h.Node.Runtime().Handlers) == 0)
	}
	ids, err := h.Users.Allocate(p.UID)
	if err != nil {
		return nil, pod.ShowAs("create user namespace: "+cri.Text(err), err)
	}
	mapping := []*runtimeapi.IDMapping{{HostId: ids.First, ContainerId: 0, Length: uint32(ids.Count)}}
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: mapping, Gids: mapping}, nil
}

// noUserNamespaces is the error for a pod with hostUsers: false on a node that does not support user namespaces.
func noUserNamespaces(handler string, known bool) error {
	text := "can't set `spec.hostUsers: false`, runtime does not support user namespaces"
	if handler != "" {
		text = fmt.Sprintf(
			"can't set `spec.hostUsers: false`, RuntimeClass handler %q does not support user namespaces",
			handler)
	}
	if !known {
		text += fmt.Sprintf(": the handler %q is not known", handler)
	}
	return errors.New(text)
}
