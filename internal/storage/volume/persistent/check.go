package persistent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1 "k8s.io/component-helpers/scheduling/corev1"

	"keelson/internal/pods/pod"
	"keelson/internal/storage/volume"
)

// An Optionless is a Plugin whose volumes are not mounted from anything, so that mount
// options cannot be honoured.
type Optionless interface{ TakesNoMountOptions() }

var (
	errNoTerm    = errors.New("no matching NodeSelectorTerms")
	errNoOptions = errors.New("mount options are not supported for this volume type")
)

// check reports why the volume must not be brought to this node, or not in this way.
func (v *Volumes) check(ctx context.Context, plugin Plugin, r Request) error {
	if r.PV == nil {
		return nil
	}
	if err := v.checkAffinity(ctx, r.PV); err != nil {
		return &volume.Failure{Step: stepAffinity.of(r), Volume: r.Name, Reason: pod.EventFailedMount, Err: err}
	}
	if _, ok := plugin.(Optionless); ok && !r.Block && len(r.MountOptions()) > 0 {
		return Failed(r, stepOptions, errNoOptions)
	}
	return nil
}

// checkAffinity reports whether the volume can be reached from this node, by the labels
// that the API server has of it.
func (v *Volumes) checkAffinity(ctx context.Context, pv *v1.PersistentVolume) error {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return nil
	}
	labels, err := v.cfg.NodeLabels(ctx)
	if err != nil {
		return fmt.Errorf("error retrieving node: %w", err)
	}
	match, err := corev1.MatchNodeSelectorTerms(&v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: labels}}, pv.Spec.NodeAffinity.Required)
	if err == nil && !match {
		err = errNoTerm
	}
	return err
}

// MountOptions are the options that the volume names, along with own ones of the plugin:
// sorted, and each once. The annotation that came before the field is still preferred.
func (s Spec) MountOptions(own ...string) []string {
	options := map[string]bool{}
	if s.PV != nil {
		named := s.PV.Spec.MountOptions
		if legacy, ok := s.PV.Annotations[v1.MountOptionAnnotation]; ok {
			named = strings.Split(legacy, ",")
		}
		for _, o := range named {
			options[o] = o != ""
		}
	}
	for _, o := range own {
		options[o] = true
	}
	maps.DeleteFunc(options, func(_ string, kept bool) bool { return !kept })
	return slices.Sorted(maps.Keys(options))
}
