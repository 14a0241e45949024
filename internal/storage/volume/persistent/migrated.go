package persistent

import (
	"context"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	translation "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"

	"keelson/internal/storage/volume"
)

// translator translates in-tree volumes of cloud providers, which CSI drivers serve today (CSI
// migration).
var translator = translation.New()

// migrated translates an in-tree cloud volume to the CSI driver's. Other specifications are
// returned unchanged.
func migrated(s Spec) (Spec, error) {
	if s.PV == nil || !translator.IsPVMigratable(s.PV) {
		return s, nil
	}
	pv, err := translator.TranslateInTreePVToCSI(klog.Background(), s.PV)
	if err != nil {
		return s, fmt.Errorf("translate volume %s to CSI: %w", s.PV.Name, err)
	}
	s.PV, s.Migrated = pv, true
	return s, nil
}

// migratedKind serves inline in-tree cloud volumes. They are attached and staged like those of claims,
// with a name that depends on the volume only.
type migratedKind struct{ v *Volumes }

func (migratedKind) Plugin() string                              { return "kubernetes.io/cloud" }
func (migratedKind) Serves(src *v1.Volume) bool                  { return translator.IsInlineMigratable(src) }
func (migratedKind) Inputs(*v1.Volume) volume.Inputs             { return volume.Inputs{} }
func (migratedKind) Release(context.Context, volume.Place) error { return nil } // it has no directory of its own
func (k migratedKind) Measure(ctx context.Context, r volume.Request, have volume.Ready) (volume.Measured, error) {
	return claimKind(k).Measure(ctx, r, have)
}

func (k migratedKind) Prepare(ctx context.Context, r volume.Request) (volume.Ready, error) {
	pv, err := translator.TranslateInTreeInlineVolumeToCSI(klog.Background(), r.Volume, r.Pod.Namespace)
	if err != nil {
		return volume.Ready{}, &volume.Unresolved{
			Err: fmt.Errorf("translate volume %s to CSI: %w", r.Volume.Name, err),
		}
	}
	// The name contains user input and becomes a directory name.
	name := strings.ReplaceAll(pv.Name, "/", "~")
	if name == "" || name == "." || name == ".." {
		return volume.Ready{}, &volume.Unresolved{
			Err: fmt.Errorf("translate volume %s to CSI: name %q is invalid", r.Volume.Name, name),
		}
	}
	return k.v.byPlugin(ctx, r.Pod, Spec{Name: name, PV: pv, Migrated: true})
}
