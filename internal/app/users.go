package app

import (
	"context"
	"fmt"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/resources/userns"
	"keelson/internal/runtime/cri"
)

// buildUsers finds out which IDs pods can have for users of their own.
func (a *agent) buildUsers(ctx context.Context) error {
	perPod := uint32(userns.DefaultIDs)
	if u := a.cfg.Kubelet.UserNamespaces; u != nil && u.IDsPerPod != nil {
		perPod = uint32(*u.IDsPerPod)
	}
	ids, err := userns.NodeIDs(ctx, perPod, int(a.cfg.Kubelet.MaxPods))
	if err != nil {
		return err
	}
	a.users, err = userns.New(userns.Config{PodsDir: filepath.Join(a.cfg.Flags.RootDir, "pods"), IDs: ids, PerPod: perPod, Log: a.log})
	return err
}

// userNamespace is the mapping of a pod that wants users of its own.
func (a *agent) userNamespace(p *v1.Pod) (*runtimeapi.UserNamespace, error) {
	handler, err := a.classes.Handler(p)
	if err != nil {
		return nil, err
	}
	if !a.handlerHas(handler, func(h cri.Handler) bool { return h.UserNamespaces }) {
		return nil, fmt.Errorf("RuntimeClass handler %q does not support user namespaces", handler)
	}
	r, err := a.users.Of(p.UID)
	if err != nil {
		return nil, err
	}
	ids := []*runtimeapi.IDMapping{{HostId: r.First, ContainerId: 0, Length: uint32(r.Count)}}
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids, Gids: ids}, nil
}
