package observed

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/runtime/cri"
)

// listing is what the lists show of one pod.
type listing struct {
	ref        pod.Ref
	at         time.Time // when the lists were requested
	sandboxes  []*runtimeapi.PodSandbox
	containers []*runtimeapi.Container
	odd        error // why the lists are inconsistent for the pod
}

// list lists all sandboxes and containers, or those of one pod if uid is not empty. Those
// without a label of a pod UID are not a kubelet's and left out.
func (c *Cache) list(ctx context.Context, uid types.UID) (map[types.UID]*listing, error) {
	at := c.cfg.Now()
	var sf *runtimeapi.PodSandboxFilter
	var cf *runtimeapi.ContainerFilter
	if uid != "" {
		label := map[string]string{pod.LabelPodUID: string(uid)}
		sf = &runtimeapi.PodSandboxFilter{LabelSelector: label}
		cf = &runtimeapi.ContainerFilter{LabelSelector: label}
	}
	// Containers are listed first: one that is created in between belongs to a sandbox that is
	// in the second list.
	cs, err := c.cfg.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: cf})
	if err != nil {
		return nil, err
	}
	ss, err := c.cfg.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: sf})
	if err != nil {
		return nil, err
	}
	all := map[types.UID]*listing{}
	of := func(labels map[string]string) *listing {
		ref, ok := cri.PodRef(labels)
		if !ok {
			return nil
		}
		l := all[ref.UID]
		if l == nil {
			l = &listing{ref: ref, at: at}
			all[ref.UID] = l
		}
		return l
	}
	for _, s := range ss.Items {
		if conflicting(s.GetLabels()[pod.LabelPodUID], s.GetMetadata().GetUid()) {
			continue // has the labels, but was not created by a kubelet
		}
		if l := of(s.Labels); l != nil {
			l.sandboxes = append(l.sandboxes, s)
		}
	}
	for _, ctr := range cs.Containers {
		if l := of(ctr.Labels); l != nil {
			l.containers = append(l.containers, ctr)
		}
	}
	crossed(all)
	return all, nil
}

// same reports whether a list shows the observed state.
func (l *listing) same(have pod.Runtime) bool {
	if len(l.sandboxes) != len(have.Sandboxes) || len(l.containers) != len(have.Containers) {
		return false
	}
	for _, s := range l.sandboxes {
		if i := slices.IndexFunc(have.Sandboxes, func(h pod.Sandbox) bool { return h.ID == s.Id }); i < 0 ||
			have.Sandboxes[i].Ready != ready(s) {
			return false
		}
	}
	for _, c := range l.containers {
		if h, ok := have.ByID(c.Id); !ok || h.SandboxID != c.PodSandboxId || h.State != cri.ToState(c.State) {
			return false
		}
	}
	return true
}

func ready(s *runtimeapi.PodSandbox) bool {
	return s.State == runtimeapi.PodSandboxState_SANDBOX_READY
}
