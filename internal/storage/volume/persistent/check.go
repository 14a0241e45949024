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

// Optionless is a Plugin whose volumes do not support mount options.
type Optionless interface{ TakesNoMountOptions() }

var (
	errNoTerm    = errors.New("no matching NodeSelectorTerms")
	errNoOptions = errors.New("mount options are not supported for this volume type")
)

// check returns an error if the volume cannot be used on this node, or not as specified.
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

// checkAffinity checks the volume's node affinity against the node's labels at the API server.
func (v *Volumes) checkAffinity(ctx context.Context, pv *v1.PersistentVolume) error {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return nil
	}
	labels, err := v.cfg.NodeLabels(ctx)
	if err != nil {
		return fmt.Errorf("error retrieving node: %w", err)
	}
	match, err := corev1.MatchNodeSelectorTerms(&v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: labels}},
		pv.Spec.NodeAffinity.Required)
	if err == nil && !match {
		err = errNoTerm
	}
	return err
}

// MountOptions returns the volume's mount options and those of the plugin, sorted and without
// duplicates. As upstream, the deprecated annotation takes precedence over the field.
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
