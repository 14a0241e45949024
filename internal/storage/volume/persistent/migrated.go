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

// Volumes of clouds that Kubernetes once had code of its own for are volumes of CSI
// drivers since. Whoever wrote them down in the old way is understood.
var clouds = translation.New()

// migrated is the specification in the words of the CSI driver, if it is one of a
// cloud; any other is left as it is.
func migrated(s Spec) (Spec, error) {
	if s.PV == nil || !clouds.IsPVMigratable(s.PV) {
		return s, nil
	}
	pv, err := clouds.TranslateInTreePVToCSI(klog.Background(), s.PV)
	if err != nil {
		return s, fmt.Errorf("understand volume %s as one of a CSI driver: %w", s.PV.Name, err)
	}
	s.PV, s.Migrated = pv, true
	return s, nil
}

// cloudKind serves volumes of clouds that a pod names itself. They are staged and
// attached as those of claims are, under a name that only the volume decides.
type cloudKind struct{ v *Volumes }

func (cloudKind) Plugin() string                              { return "kubernetes.io/cloud" }
func (cloudKind) Serves(src *v1.Volume) bool                  { return clouds.IsInlineMigratable(src) }
func (cloudKind) Inputs(*v1.Volume) volume.Inputs             { return volume.Inputs{} }
func (cloudKind) Release(context.Context, volume.Place) error { return nil } // it has no place of its own
func (k cloudKind) Measure(ctx context.Context, r volume.Request, have volume.Ready) (volume.Measured, error) {
	return claimKind(k).Measure(ctx, r, have)
}

func (k cloudKind) Prepare(ctx context.Context, r volume.Request) (volume.Ready, error) {
	pv, err := clouds.TranslateInTreeInlineVolumeToCSI(klog.Background(), r.Volume, r.Pod.Namespace)
	if err != nil {
		return volume.Ready{}, &volume.Unresolved{Err: fmt.Errorf("understand volume %s as one of a CSI driver: %w", r.Volume.Name, err)}
	}
	// The name is made of the pod's words, and becomes that of a directory.
	name := strings.ReplaceAll(pv.Name, "/", "~")
	if name == "" || name == "." || name == ".." {
		return volume.Ready{}, &volume.Unresolved{Err: fmt.Errorf("understand volume %s as one of a CSI driver: name %q is not one", r.Volume.Name, name)}
	}
	return k.v.byPlugin(ctx, r.Pod, Spec{Name: name, PV: pv, Migrated: true})
}
