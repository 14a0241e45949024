package container

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"keelson/internal/pods/pod"
)

// variables is an environment under construction. The last value of a name wins, in the position of
// its first occurrence.
type variables struct {
	names  []string
	values map[string]string
}

func (v *variables) set(name, value string) {
	if _, ok := v.values[name]; !ok {
		v.names = append(v.names, name)
	}
	v.values[name] = value
}

// Env returns the environment of a container: envFrom, then env, then service variables whose names
// are not yet set. It fails if a required reference cannot be resolved.
func (r *Runner) Env(ctx context.Context, s Start) ([]pod.EnvVar, error) {
	links, err := r.serviceLinks(s.Pod)
	if err != nil {
		return nil, err
	}
	b := envBuilder{
		r:       r,
		start:   s,
		node:    r.cfg.Node(),
		podIPs:  r.podIPs(s.Pod, s.PodIPs),
		vars:    variables{values: map[string]string{}},
		linked:  lookupIn(links),
		maps:    map[string]*v1.ConfigMap{},
		secrets: map[string]*v1.Secret{},
	}
	for i := range s.Container.EnvFrom {
		if err := b.addFrom(ctx, &s.Container.EnvFrom[i]); err != nil {
			return nil, err
		}
	}
	for i := range s.Container.Env {
		if err := b.add(ctx, &s.Container.Env[i]); err != nil {
			return nil, err
		}
	}
	for _, l := range links {
		if _, ok := b.vars.values[l.Name]; !ok {
			b.vars.set(l.Name, l.Value)
		}
	}
	env := make([]pod.EnvVar, 0, len(b.vars.names))
	for _, n := range b.vars.names {
		env = append(env, pod.EnvVar{Name: n, Value: b.vars.values[n]})
	}
	return env, nil
}

// serviceLinks returns the service environment variables. A pod from the API server is not started
// before the services are listed; a static pod is, since it may be the one that serves the API.
func (r *Runner) serviceLinks(p *v1.Pod) ([]pod.EnvVar, error) {
	if r.cfg.Services == nil {
		return nil, nil
	}
	if !r.cfg.Services.Synced() && !pod.IsStatic(p) {
		return nil, errors.New("services have not yet been read at least once, cannot construct envvars")
	}
	links := p.Spec.EnableServiceLinks == nil || *p.Spec.EnableServiceLinks
	return serviceEnv(visibleServices(p.Namespace, links, r.cfg.Services.List)), nil
}

// envBuilder builds one environment. Each ConfigMap and Secret is fetched once.
type envBuilder struct {
	r       *Runner
	start   Start
	node    NodeFacts
	podIPs  []string
	vars    variables
	linked  func(string) (string, bool)
	maps    map[string]*v1.ConfigMap
	secrets map[string]*v1.Secret
}

// lookup resolves $(NAME): first the variables set so far, then the service variables.
func (b *envBuilder) lookup(name string) (string, bool) {
	if v, ok := b.vars.values[name]; ok {
		return v, true
	}
	return b.linked(name)
}

func (b *envBuilder) addFrom(ctx context.Context, from *v1.EnvFromSource) error {
	if ref := from.ConfigMapRef; ref != nil {
		m, err := b.configMap(ctx, ref.Name, isTrue(ref.Optional))
		if err != nil {
			return err
		}
		if m != nil {
			for _, k := range slices.Sorted(maps.Keys(m.Data)) {
				b.vars.set(from.Prefix+k, m.Data[k])
			}
		}
	}
	if ref := from.SecretRef; ref != nil {
		s, err := b.secret(ctx, ref.Name, isTrue(ref.Optional))
		if err != nil {
			return err
		}
		if s != nil {
			for _, k := range slices.Sorted(maps.Keys(s.Data)) {
				b.vars.set(from.Prefix+k, string(s.Data[k]))
			}
		}
	}
	return nil
}

func (b *envBuilder) add(ctx context.Context, e *v1.EnvVar) error {
	if e.Value != "" {
		b.vars.set(e.Name, pod.Expand(e.Value, b.lookup))
		return nil
	}
	value, ok, err := b.fromSource(ctx, e.ValueFrom)
	if err != nil {
		return err
	}
	if ok {
		b.vars.set(e.Name, value)
	}
	return nil
}

// fromSource returns the value of a valueFrom. ok is false if an optional reference has no value.
func (b *envBuilder) fromSource(ctx context.Context, src *v1.EnvVarSource) (value string, ok bool, err error) {
	ns := b.start.Pod.Namespace
	switch {
	case src == nil:
		return "", true, nil
	case src.FieldRef != nil:
		value, err = fieldValue(b.start.Pod, src.FieldRef, b.podIPs, b.node)
		return value, true, err
	case src.ResourceFieldRef != nil:
		value, err = pod.ResourceValue(b.start.Pod, b.start.Container.Name, src.ResourceFieldRef, b.node.Allocatable)
		return value, true, err
	case src.ConfigMapKeyRef != nil:
		ref := src.ConfigMapKeyRef
		m, err := b.configMap(ctx, ref.Name, isTrue(ref.Optional))
		if err != nil || m == nil {
			return "", false, err
		}
		if value, ok = m.Data[ref.Key]; !ok && !isTrue(ref.Optional) {
			return "", false, fmt.Errorf("couldn't find key %v in ConfigMap %v/%v", ref.Key, ns, ref.Name)
		}
		return value, ok, nil
	case src.SecretKeyRef != nil:
		ref := src.SecretKeyRef
		s, err := b.secret(ctx, ref.Name, isTrue(ref.Optional))
		if err != nil || s == nil {
			return "", false, err
		}
		data, ok := s.Data[ref.Key]
		if !ok && !isTrue(ref.Optional) {
			return "", false, fmt.Errorf("couldn't find key %v in Secret %v/%v", ref.Key, ns, ref.Name)
		}
		return string(data), ok, nil
	case src.FileKeyRef != nil:
		return b.r.fileValue(b.start.Pod, src.FileKeyRef)
	}
	return "", true, nil
}

// configMap returns nil if an optional ConfigMap does not exist.
func (b *envBuilder) configMap(ctx context.Context, name string, optional bool) (*v1.ConfigMap, error) {
	return object(b.maps, name, optional, func() (*v1.ConfigMap, error) {
		if b.r.cfg.Objects == nil {
			return nil, fmt.Errorf("couldn't get configMap %v/%v, no kubeClient defined", b.start.Pod.Namespace, name)
		}
		return b.r.cfg.Objects.ConfigMap(ctx, b.start.Pod.Namespace, name)
	})
}

// secret returns nil if an optional Secret does not exist.
func (b *envBuilder) secret(ctx context.Context, name string, optional bool) (*v1.Secret, error) {
	return object(b.secrets, name, optional, func() (*v1.Secret, error) {
		if b.r.cfg.Objects == nil {
			return nil, fmt.Errorf("couldn't get secret %v/%v, no kubeClient defined", b.start.Pod.Namespace, name)
		}
		return b.r.cfg.Objects.Secret(ctx, b.start.Pod.Namespace, name)
	})
}

func object[T any](have map[string]*T, name string, optional bool, fetch func() (*T, error)) (*T, error) {
	if o, ok := have[name]; ok {
		return o, nil
	}
	o, err := fetch()
	if apierrors.IsNotFound(err) && optional {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	have[name] = o
	return o, nil
}
