package persistent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/storage/volume"
)

// Labels computes the node's SELinux labels.
type Labels interface {
	// FileLabel returns the label of files for a container with these options, "" if only the
	// runtime determines it.
	FileLabel(*v1.SELinuxOptions) (string, error)
}

// labelRequest is how a pod needs a volume to be labelled. The zero value is for a volume that is
// never mounted with a label.
type labelRequest struct {
	counts *labelCounts // nil: not counted
	mount  bool         // mounted with the label; otherwise labels are only compared
	label  string       // empty for none
	wrong  string       // the problem with the label, as in metrics; empty: none
	err    error        // the same as an error
}

// asMounted returns the label to mount with.
func (want labelRequest) asMounted() string {
	if want.mount {
		return want.label
	}
	return ""
}

// labelRequestOf returns how the pod needs the volume to be labelled.
func (v *Volumes) labelRequestOf(ctx context.Context, plugin Plugin, p *v1.Pod, s Spec) (labelRequest, error) {
	labeller, ok := plugin.(Labeller)
	if !ok || v.cfg.Labels == nil || s.Claim == nil || s.Block {
		return labelRequest{}, nil
	}
	if takes, err := labeller.TakesLabel(ctx, s); err != nil || !takes {
		return labelRequest{}, err
	}
	want := labelRequest{counts: v.labelled.of(plugin, s), mount: v.cfg.LabelAll || isReadWriteOncePod(s)}
	var err error
	if want.label, err = labelOf(p, s.Claim.Name, v.cfg.Labels.FileLabel); err != nil {
		want.wrong, want.err = labelContainer, err
		var differ *labelsDiffer
		if errors.As(err, &differ) {
			want.wrong = labelPod
		}
	}
	return want, nil
}

// labelsDiffer is the error for a pod whose containers need different labels for one volume.
type labelsDiffer struct{ labels []string }

func (l *labelsDiffer) Error() string {
	return "multiple SELinux labels found: " + strings.Join(l.labels, ",")
}

// labelOf returns the label that the pod's containers need for a volume, "" if they need none or
// leave it to the runtime. Containers without options are ignored.
func labelOf(p *v1.Pod, claim string, fileLabel func(*v1.SELinuxOptions) (string, error)) (string, error) {
	sc := p.Spec.SecurityContext
	if sc != nil && sc.SELinuxChangePolicy != nil && *sc.SELinuxChangePolicy == v1.SELinuxChangePolicyRecursive {
		return "", nil
	}
	var labels []string
	for _, c := range pod.Containers(p) {
		var o *v1.SELinuxOptions
		if sc != nil {
			o = sc.SELinuxOptions
		}
		if c.SecurityContext != nil && c.SecurityContext.SELinuxOptions != nil {
			o = c.SecurityContext.SELinuxOptions
		}
		if o == nil || !mountsClaim(p, c, claim) {
			continue
		}
		label, err := fileLabel(o)
		if err != nil {
			return "", fmt.Errorf("failed to construct SELinux label from context %q: %w", o, err)
		}
		if !slices.Contains(labels, label) {
			labels = append(labels, label)
		}
	}
	switch len(labels) {
	case 0:
		return "", nil
	case 1:
		return labels[0], nil
	}
	return "", &labelsDiffer{labels}
}

// mountsClaim reports whether the container mounts the volume of a claim.
func mountsClaim(p *v1.Pod, c *v1.Container, claim string) bool {
	for i := range c.VolumeMounts {
		for j := range p.Spec.Volumes {
			src := &p.Spec.Volumes[j]
			if src.Name != c.VolumeMounts[i].Name || src.PersistentVolumeClaim == nil && src.Ephemeral == nil {
				continue
			}
			if name, _ := claimOf(p, src); name == claim {
				return true
			}
		}
	}
	return false
}

// holding is the label of a volume when a pod starts to hold it.
type holding struct {
	mine   bool   // the pod has it already
	others bool   // other pods hold it
	label  string // that it is mounted with, or will be
}

// labelFor decides the label with which a pod gets a volume. A volume that the pod already has
// keeps its label, since a remount would affect running containers. A volume that other pods hold
// must have the label that the pod needs.
func labelFor(have holding, want string) (label string, ok bool) {
	switch {
	case have.mine:
		return have.label, true
	case have.others:
		return have.label, have.label == want
	}
	return want, true
}

// mayHoldLocked returns an error if the pod does not hold the volume yet and its label cannot be
// determined.
func (v *Volumes) mayHoldLocked(id string, h hold, want labelRequest) error {
	if d := v.devices[id]; want.err == nil || !want.mount || d != nil && d.holders[h] == published {
		return nil
	}
	want.counts.failed(want.wrong, true)
	return &volume.Unresolved{Err: want.err}
}

// labelLocked sets the label of the volume to the one that the pod needs, or returns an error.
func (v *Volumes) labelLocked(d *device, h hold, want labelRequest) error {
	how, held := d.holders[h]
	others := len(d.holders) > 1 || len(d.holders) == 1 && !held
	label, ok := labelFor(holding{mine: how == published, others: others, label: d.label}, want.asMounted())
	if !ok {
		d.refused[h.uid] = true
		want.counts.failed(labelVolume, true)
		return &volume.Unresolved{
			Err: fmt.Errorf("conflicting SELinux labels of volume %s: %q and %q", d.dev.Name, d.label,
				want.asMounted()),
		}
	}
	d.label = label
	delete(d.refused, h.uid)
	if label != "" && !d.counted {
		d.counted = true
		want.counts.admitted()
	}
	if want.counts == nil || want.mount || held {
		return nil
	}
	switch {
	case want.err != nil:
		want.counts.failed(want.wrong, false)
	case d.wantedLabel == nil:
		d.wantedLabel = &want.label
	case *d.wantedLabel != want.label:
		want.counts.failed(labelVolume, false)
	}
	return nil
}

// foundLocked sets the label of a volume from a record. Upstream records it with the pod's volume,
// not with the device.
func (v *Volumes) foundLocked(d *device, label string) {
	if label != "" && v.cfg.Labels != nil { // otherwise it was mounted by another kernel
		d.label, d.stagedLabel = label, label
	}
}
