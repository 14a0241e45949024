package app

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/node/checkpoint"
	"keelson/internal/pods/pod"
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
	a.users, err = userns.New(userns.Config{PodsDir: filepath.Join(a.cfg.Flags.RootDir, "pods"), IDs: ids, PerPod: perPod,
		Recover: func(uid types.UID) (userns.Range, bool) { return a.usersInRuntime(ctx, uid) }, Unusable: a.unusable, Log: a.log})
	return err
}

// usersInRuntime are the IDs that the runtime says a pod has.
func (a *agent) usersInRuntime(ctx context.Context, uid types.UID) (userns.Range, bool) {
	list, err := a.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{pod.LabelPodUID: string(uid)}}})
	if err != nil {
		a.log.Error("cannot ask the runtime for the user namespace of a pod", "uid", uid, "err", err)
		return userns.Range{}, false
	}
	for _, s := range list.GetItems() {
		st, err := a.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.Id})
		if err != nil {
			a.log.Error("cannot ask the runtime for the user namespace of a pod", "uid", uid, "err", err)
			continue
		}
		if ids := st.GetStatus().GetLinux().GetNamespaces().GetOptions().GetUsernsOptions().GetUids(); len(ids) == 1 {
			return userns.Range{First: ids[0].HostId, Count: uint64(ids[0].Length)}, true
		}
	}
	return userns.Range{}, false
}

// unusable tells the cluster of a state file that was put aside, as soon as there is
// a way.
func (a *agent) unusable(err error) {
	if a.events == nil {
		a.spoilt = append(a.spoilt, err)
		return
	}
	a.events.Node(v1.EventTypeWarning, checkpoint.EventUnusable, err.Error())
}

// noUserNamespaces is the error for a pod with hostUsers: false on a node that does not support user namespaces.
func (a *agent) noUserNamespaces(handler string) string {
	text := "can't set `spec.hostUsers: false`, runtime does not support user namespaces"
	if handler != "" {
		text = fmt.Sprintf("can't set `spec.hostUsers: false`, RuntimeClass handler %q does not support user namespaces", handler)
	}
	handlers := a.node.Runtime().Handlers
	if len(handlers) > 0 && !slices.ContainsFunc(handlers, func(h cri.Handler) bool { return h.Name == handler }) {
		text += fmt.Sprintf(": the handler %q is not known", handler)
	}
	return text
}

// userNamespace is the mapping of a pod that wants users of its own.
func (a *agent) userNamespace(p *v1.Pod) (*runtimeapi.UserNamespace, error) {
	handler, err := a.classes.Handler(p)
	if err != nil {
		return nil, err
	}
	if !a.handlerHas(handler, func(h cri.Handler) bool { return h.UserNamespaces }) {
		return nil, errors.New(a.noUserNamespaces(handler))
	}
	r, err := a.users.Of(p.UID)
	if err != nil {
		return nil, pod.ShowAs("create user namespace: "+cri.Text(err), err)
	}
	ids := []*runtimeapi.IDMapping{{HostId: r.First, ContainerId: 0, Length: uint32(r.Count)}}
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids, Gids: ids}, nil
}
