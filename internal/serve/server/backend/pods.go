package backend

import (
	"context"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/desired"
	"keelson/internal/pods/observed"
	"keelson/internal/pods/pod"
	"keelson/internal/pods/status"
)

// Pods shows the pods of the node with their latest status.
type Pods struct {
	Desired  *desired.Store
	Statuses *status.Writer
}

// Pods lists all pods.
func (v Pods) Pods() []*v1.Pod {
	var list []*v1.Pod
	for _, d := range v.Desired.All() {
		list = append(list, v.withStatus(d.Spec))
	}
	return list
}

// Pod finds a pod by name.
func (v Pods) Pod(namespace, name string) (*v1.Pod, bool) {
	d, ok := v.Desired.ByName(namespace, name)
	if !ok {
		return nil, false
	}
	return v.withStatus(d.Spec), true
}

// ByUID finds a pod by UID.
func (v Pods) ByUID(uid types.UID) (*v1.Pod, bool) {
	spec, _, known := v.Desired.Get(uid)
	if !known || spec == nil {
		return nil, false
	}
	return v.withStatus(spec), true
}

func (v Pods) withStatus(p *v1.Pod) *v1.Pod {
	st, ok := v.Statuses.Get(p.UID)
	if !ok {
		return p
	}
	shown := *p
	shown.Status = st
	return &shown
}

// Running returns a function that lists the pods that run in the runtime, including those without a source, with their
// running containers.
func Running(cache *observed.Cache) func(context.Context) ([]*v1.Pod, error) {
	return func(context.Context) ([]*v1.Pod, error) {
		var list []*v1.Pod
		for _, uid := range cache.UIDs() {
			have, ok := cache.Get(uid)
			if !ok || !have.Live() {
				continue
			}
			p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: have.UID, Name: have.Name, Namespace: have.Namespace}}
			for _, c := range have.Containers {
				if c.State == pod.StateRunning {
					p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: c.Name, Image: c.Image})
				}
			}
			list = append(list, p)
		}
		return list, nil
	}
}
