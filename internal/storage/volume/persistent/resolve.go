package persistent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/storage/volume"
)

// resolve returns the specification of a pod's volume.
func (v *Volumes) resolve(ctx context.Context, p *v1.Pod, src *v1.Volume) (Spec, error) {
	name, readOnly := claimOf(p, src)
	spec, err := v.follow(ctx, p, src, name)
	var foreign *notOwner
	switch {
	case errors.As(err, &foreign):
		return Spec{}, &volume.Unresolved{Err: err}
	case err != nil:
		return Spec{}, &volume.Unresolved{Err: fmt.Errorf("error processing PVC %s/%s: %w", p.Namespace, name, err)}
	}
	spec.ReadOnly = readOnly
	if err := checkMode(p, src, spec); err != nil {
		return Spec{}, &volume.Unresolved{Err: err}
	}
	return spec, nil
}

// claimOf returns the name of a volume's claim: that of the reference, or of the claim created for
// a generic ephemeral volume.
func claimOf(p *v1.Pod, src *v1.Volume) (name string, readOnly bool) {
	if src.Ephemeral != nil {
		return p.Name + "-" + src.Name, false
	}
	return src.PersistentVolumeClaim.ClaimName, src.PersistentVolumeClaim.ReadOnly
}

func (v *Volumes) follow(ctx context.Context, p *v1.Pod, src *v1.Volume, name string) (Spec, error) {
	if v.cfg.API == nil {
		return Spec{}, errStandalone
	}
	claim, err := v.cfg.API.Claim(ctx, p.Namespace, name)
	if err != nil {
		return Spec{}, fmt.Errorf("failed to fetch PVC from API server: %w", err)
	}
	if err := checkClaim(claim); err != nil {
		return Spec{}, err
	}
	if src.Ephemeral != nil && !metav1.IsControlledBy(claim, p) {
		return Spec{}, &notOwner{claim, p}
	}
	pv, err := v.cfg.API.Volume(ctx, claim.Spec.VolumeName)
	if err != nil {
		return Spec{}, fmt.Errorf("failed to fetch PV %s from API server: %w", claim.Spec.VolumeName, err)
	}
	if err := checkBound(claim, pv); err != nil {
		return Spec{}, err
	}
	return migrated(Spec{Name: pv.Name, PV: pv, Claim: claim, Block: isBlock(pv.Spec.VolumeMode)})
}

// notOwner is the error for the claim of a generic ephemeral volume that was not created for the
// pod.
type notOwner struct {
	claim *v1.PersistentVolumeClaim
	pod   *v1.Pod
}

func (e *notOwner) Error() string {
	return fmt.Sprintf("PVC %s/%s was not created for pod %s/%s (pod is not owner)", e.claim.Namespace, e.claim.Name,
		e.pod.Namespace, e.pod.Name)
}

// protection is the finalizer that keeps a claim while pods use it. With it a claim that is being
// deleted still serves its pods, also after a restart of the agent.
const protection = "kubernetes.io/pvc-protection"

// checkClaim returns an error if the claim is not bound or is being deleted.
func checkClaim(claim *v1.PersistentVolumeClaim) error {
	switch {
	case claim.DeletionTimestamp != nil && !slices.Contains(claim.Finalizers, protection):
		return errors.New("PVC is being deleted")
	case claim.Status.Phase != v1.ClaimBound:
		return errors.New("PVC is not bound")
	case claim.Spec.VolumeName == "":
		return errors.New("PVC has empty pvc.Spec.VolumeName")
	}
	return nil
}

// checkBound checks that the volume is bound to this claim. A claim may have been deleted and
// created again under the same name.
func checkBound(claim *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) error {
	switch ref := pv.Spec.ClaimRef; {
	case ref == nil:
		return fmt.Errorf(
			"found PV object %s but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim",
			pv.Name)
	case ref.UID != claim.UID:
		return fmt.Errorf("found PV object %s but its pv.Spec.ClaimRef.UID %s does not point to claim.UID %s", pv.Name,
			ref.UID, claim.UID)
	}
	return nil
}

// checkMode checks the volume mode against volumeMounts and volumeDevices.
func checkMode(p *v1.Pod, src *v1.Volume, s Spec) error {
	mounted, passed := uses(p, src.Name)
	switch {
	case mounted && s.Block:
		return fmt.Errorf("volume %s has volumeMode %s, but is specified in volumeMounts", src.Name,
			v1.PersistentVolumeBlock)
	case passed && !s.Block:
		return fmt.Errorf("volume %s has volumeMode %s, but is specified in volumeDevices", src.Name,
			v1.PersistentVolumeFilesystem)
	}
	return nil
}

// uses reports how containers use a volume.
func uses(p *v1.Pod, name string) (mounted, passed bool) {
	for _, c := range pod.Containers(p) {
		for i := range c.VolumeMounts {
			mounted = mounted || c.VolumeMounts[i].Name == name
		}
		for i := range c.VolumeDevices {
			passed = passed || c.VolumeDevices[i].Name == name
		}
	}
	return mounted, passed
}

func isBlock(mode *v1.PersistentVolumeMode) bool {
	return mode != nil && *mode == v1.PersistentVolumeBlock
}

// isReadWriteOncePod reports whether the access mode is ReadWriteOncePod.
func isReadWriteOncePod(s Spec) bool {
	return s.PV != nil && len(s.PV.Spec.AccessModes) == 1 && s.PV.Spec.AccessModes[0] == v1.ReadWriteOncePod
}
