package fakeapi

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// AddNamespace creates a namespace with its default service account and the
// certificate bundle that every namespace has.
func (s *Server) AddNamespace(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	add := func(r *resource, ns, name string, obj runtime.Object) {
		m := accessor(obj)
		m.SetName(name)
		if _, err := s.createLocked(r, ns, obj); err != nil {
			panic(fmt.Sprintf("fakeapi: add namespace: %v", err)) // a test adds it twice
		}
	}
	gv := corev1.SchemeGroupVersion
	add(resources[namespaceGVR], "", name,
		&corev1.Namespace{Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}})
	add(resources[gv.WithResource("serviceaccounts")], name, "default", &corev1.ServiceAccount{})
	add(resources[gv.WithResource("configmaps")], name,
		"kube-root-ca.crt", &corev1.ConfigMap{Data: map[string]string{"ca.crt": "a certificate\n"}})
}

// Pod returns a pod, or nil if there is none. It must not be changed.
func (s *Server) Pod(namespace, name string) *corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, _ := s.objects[podGVR][key(namespace, name)].(*corev1.Pod)
	return p
}

// Node returns a node, or nil if there is none. It must not be changed.
func (s *Server) Node(name string) *corev1.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, _ := s.objects[corev1.SchemeGroupVersion.WithResource("nodes")][key("", name)].(*corev1.Node)
	return n
}

// Objects returns all objects of a resource, ordered by namespace and name.
// They must not be changed.
func (s *Server) Objects(gvr schema.GroupVersionResource) []runtime.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.selectLocked(everything(gvr))
}

func everything(gvr schema.GroupVersionResource) selector {
	return selector{res: resources[gvr], labels: labels.Everything(), fields: fields.Everything()}
}

// WaitPod waits until wanted reports true for a pod; have is nil while there is none. The
// error has the pod's last status.
func (s *Server) WaitPod(
	ctx context.Context, namespace, name string, wanted func(have *corev1.Pod) bool,
) (*corev1.Pod, error) {
	sel := everything(podGVR)
	sel.namespace, sel.name = namespace, name
	w := &watcher{sel: sel, wake: make(chan struct{}, 1)}
	s.mu.Lock()
	s.watchers[w] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.watchers, w)
		s.mu.Unlock()
	}()
	have := s.Pod(namespace, name)
	for {
		if wanted(have) {
			return have, nil
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			if have == nil {
				return nil, fmt.Errorf("wait for pod %s/%s: there is none: %w", namespace, name, ctx.Err())
			}
			return have, fmt.Errorf("wait for pod %s/%s: its status is %+v: %w", namespace, name, have.Status,
				ctx.Err())
		}
		// Every change in turn, so that a state that passes quickly is seen.
		s.mu.Lock()
		batch := w.pending
		w.pending = nil
		s.mu.Unlock()
		for _, e := range batch {
			have, _ = e.Object.(*corev1.Pod)
			if e.Type == "DELETED" {
				have = nil
			}
			if wanted(have) {
				return have, nil
			}
		}
	}
}
