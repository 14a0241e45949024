package container

import (
	"errors"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// namespaces returns the kernel namespaces that a pod's sandbox and containers share. targetID, if
// not empty, is the container whose process namespace an ephemeral container joins.
func namespaces(p *v1.Pod, targetID string, userns *runtimeapi.UserNamespace) *runtimeapi.NamespaceOption {
	o := &runtimeapi.NamespaceOption{
		Network:       runtimeapi.NamespaceMode_POD,
		Ipc:           runtimeapi.NamespaceMode_POD,
		Pid:           runtimeapi.NamespaceMode_CONTAINER,
		UsernsOptions: userns,
	}
	if p.Spec.HostNetwork {
		o.Network = runtimeapi.NamespaceMode_NODE
	}
	if p.Spec.HostIPC {
		o.Ipc = runtimeapi.NamespaceMode_NODE
	}
	switch {
	case p.Spec.HostPID:
		o.Pid = runtimeapi.NamespaceMode_NODE
	case p.Spec.ShareProcessNamespace != nil && *p.Spec.ShareProcessNamespace:
		o.Pid = runtimeapi.NamespaceMode_POD
	}
	if targetID != "" {
		o.Pid, o.TargetId = runtimeapi.NamespaceMode_TARGET, targetID
	}
	return o
}

// userNamespace returns the pod's user namespace: that of the node unless hostUsers is false.
func (r *Runner) userNamespace(p *v1.Pod) (*runtimeapi.UserNamespace, error) {
	if p.Spec.HostUsers == nil || *p.Spec.HostUsers {
		return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE}, nil
	}
	if r.cfg.UserNamespace == nil {
		return nil, errors.New("cannot give the pod users of its own: this node has no user namespaces for pods")
	}
	return r.cfg.UserNamespace(p)
}
