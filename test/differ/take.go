package differ

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// take takes one step on one side.
func (s *side) take(ctx context.Context, l *Life, step Step) error {
	pods := s.client.CoreV1().Pods(s.ns)
	name := s.podName(l)
	patched := func(data json.RawMessage, subresource ...string) error {
		_, err := pods.Patch(ctx, name, types.StrategicMergePatchType, data, metav1.PatchOptions{}, subresource...)
		return err
	}
	switch step.Verb {
	case create:
		return s.create(ctx, l)
	case remove:
		if l.Static {
			return os.Remove(s.manifest(l))
		}
		o := metav1.DeleteOptions{}
		if step.Grace >= 0 {
			o.GracePeriodSeconds = &step.Grace
		}
		return pods.Delete(ctx, name, o)
	case evict:
		o := &metav1.DeleteOptions{}
		if step.Grace >= 0 {
			o.GracePeriodSeconds = &step.Grace
		}
		return pods.EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name}, DeleteOptions: o})
	case exit:
		return s.runtime.Exit(s.ns+"/"+name, step.Container, step.Code)
	case oom:
		if s.fake == nil {
			return errOnFakeOnly
		}
		return s.fake.OOMKill(s.ns+"/"+name, step.Container)
	case killBox:
		return s.runtime.KillSandbox(s.ns + "/" + name)
	case sick, well:
		s.record.track(l.Name).setSick(step.Container, step.Verb == sick)
		return nil
	case patch:
		return patched(step.Patch)
	case status:
		return patched(step.Patch, "status")
	case resize:
		return patched(step.Patch, "resize")
	case ephemeral:
		return patched(step.Patch, "ephemeralcontainers")
	case putObject:
		return s.put(ctx, *step.Object)
	case dropObj:
		return s.drop(ctx, *step.Object)
	}
	return fmt.Errorf("no step is called %q", step.Verb)
}

// create creates the pod in the cluster, or a static pod as a manifest.
func (s *side) create(ctx context.Context, l *Life) error {
	for _, o := range l.Objects {
		if err := s.put(ctx, o); err != nil {
			return err
		}
	}
	p := l.Pod.DeepCopy()
	p.Name, p.Namespace = l.Name, s.ns
	s.bind(p)
	if !l.Static {
		p.Spec.NodeName = s.node
		_, err := s.client.CoreV1().Pods(s.ns).Create(ctx, p, metav1.CreateOptions{})
		return err
	}
	p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	data, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	// It is renamed into place, so that the agent never reads a part of it.
	half := filepath.Join(s.rig.Dir, l.Name+".half")
	if err := os.WriteFile(half, data, 0o644); err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	return os.Rename(half, s.manifest(l))
}

// put creates an object, or updates its data.
func (s *side) put(ctx context.Context, o Object) error {
	meta := metav1.ObjectMeta{Name: o.Name}
	if o.Secret {
		x := &corev1.Secret{ObjectMeta: meta, StringData: o.Data, Type: o.Type}
		_, err := s.client.CoreV1().Secrets(s.ns).Create(ctx, x, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			_, err = s.client.CoreV1().Secrets(s.ns).Update(ctx, x, metav1.UpdateOptions{})
		}
		return err
	}
	x := &corev1.ConfigMap{ObjectMeta: meta, Data: o.Data}
	_, err := s.client.CoreV1().ConfigMaps(s.ns).Create(ctx, x, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = s.client.CoreV1().ConfigMaps(s.ns).Update(ctx, x, metav1.UpdateOptions{})
	}
	return err
}

func (s *side) drop(ctx context.Context, o Object) error {
	if o.Secret {
		return s.client.CoreV1().Secrets(s.ns).Delete(ctx, o.Name, metav1.DeleteOptions{})
	}
	return s.client.CoreV1().ConfigMaps(s.ns).Delete(ctx, o.Name, metav1.DeleteOptions{})
}

// finish deletes a life's pod if it exists.
func (s *side) finish(ctx context.Context, l *Life) error {
	if l.Static {
		if err := os.Remove(s.manifest(l)); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("remove manifest: %w", err)
		}
		return nil
	}
	err := s.client.CoreV1().Pods(s.ns).Delete(ctx, l.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete pod %s: %w", l.Name, err)
	}
	return nil
}

// dropObjects removes the objects of a life on both sides, also those that its steps created.
func (p *play) dropObjects(ctx context.Context, l *Life) error {
	all := map[string]Object{}
	for _, o := range l.Objects {
		all[fmt.Sprint(o.Secret, o.Name)] = o
	}
	for _, a := range l.Acts {
		for _, st := range append(a.Steps, a.Down...) {
			if st.Object != nil {
				all[fmt.Sprint(st.Object.Secret, st.Object.Name)] = *st.Object
			}
		}
	}
	for _, side := range p.sides {
		for _, o := range all {
			if err := side.drop(ctx, o); err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("remove object %s: %w", o.Name, err)
			}
		}
	}
	return nil
}
