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

// Labels is the node's SELinux.
type Labels interface {
	// FileLabel is the label of files that a container with these options can use;
	// empty if only the runtime will know.
	FileLabel(*v1.SELinuxOptions) (string, error)
}

// wish is how a pod wants a volume to be labelled. The zero wish is that of a volume
// that is never mounted with a label.
type wish struct {
	counts *labelCounts // nil: nothing of it is counted
	mount  bool         // it is mounted with the label; else the label is only compared
	label  string       // empty for none
	wrong  string       // what is the matter with the label, in metrics; empty: nothing
	err    error        // the same, in words
}

// asMounted is the label that the mount is to have.
func (w wish) asMounted() string {
	if w.mount {
		return w.label
	}
	return ""
}

// wishOf tells how the pod wants the volume to be labelled.
func (v *Volumes) wishOf(ctx context.Context, plugin Plugin, p *v1.Pod, s Spec) (wish, error) {
	labeller, ok := plugin.(Labeller)
	if !ok || v.cfg.Labels == nil || s.Claim == nil || s.Block {
		return wish{}, nil
	}
	if takes, err := labeller.TakesLabel(ctx, s); err != nil || !takes {
		return wish{}, err
	}
	w := wish{counts: v.labelled.of(plugin, s), mount: v.cfg.LabelAll || onePodOnly(s)}
	var err error
	if w.label, err = labelOf(p, s.Claim.Name, v.cfg.Labels.FileLabel); err != nil {
		w.wrong, w.err = labelContainer, err
		var differ *labelsDiffer
		if errors.As(err, &differ) {
			w.wrong = labelPod
		}
	}
	return w, nil
}

// labelsDiffer is why a pod's volume has no label: its containers are to have
// different ones.
type labelsDiffer struct{ labels []string }

func (l *labelsDiffer) Error() string {
	return "multiple SELinux labels found: " + strings.Join(l.labels, ",")
}

// labelOf is the label that the pod's containers want what is behind a claim to have;
// empty if they want none, or leave it to the runtime. Containers without options do
// not count.
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

// mountsClaim reports whether the container mounts what is behind a claim.
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

// holding is how a volume is labelled when a pod comes to hold it.
type holding struct {
	mine   bool   // the pod has it already
	others bool   // hold it
	label  string // that it is mounted with, or is to be, for whoever holds it
}

// labelFor decides with which label a pod gets a volume. One that it has stays as it
// is: to mount it anew would take it away from running containers. One that others
// hold must have the label that the pod wants.
func labelFor(have holding, want string) (label string, ok bool) {
	switch {
	case have.mine:
		return have.label, true
	case have.others:
		return have.label, have.label == want
	}
	return want, true
}

// mayHoldLocked refuses a volume to a pod that does not have it, and that cannot say
// which label it wants.
func (v *Volumes) mayHoldLocked(id string, h hold, w wish) error {
	if d := v.devices[id]; w.err == nil || !w.mount || d != nil && d.holders[h] {
		return nil
	}
	w.counts.failed(w.wrong, true)
	return &volume.Unresolved{Err: w.err}
}

// labelLocked gives the volume the label that the pod wants, or refuses it.
func (v *Volumes) labelLocked(d *device, h hold, w wish) error {
	has, held := d.holders[h]
	others := len(d.holders) > 1 || len(d.holders) == 1 && !held
	label, ok := labelFor(holding{mine: has, others: others, label: d.label}, w.asMounted())
	if !ok {
		d.refused[h.uid] = true
		w.counts.failed(labelVolume, true)
		return &volume.Unresolved{Err: fmt.Errorf("conflicting SELinux labels of volume %s: %q and %q", d.dev.Name, d.label, w.asMounted())}
	}
	d.label = label
	delete(d.refused, h.uid)
	if label != "" && !d.counted {
		d.counted = true
		w.counts.admitted()
	}
	if w.counts == nil || w.mount || held {
		return nil
	}
	switch {
	case w.err != nil:
		w.counts.failed(w.wrong, false)
	case d.later == nil:
		d.later = &w.label
	case *d.later != w.label:
		w.counts.failed(labelVolume, false)
	}
	return nil
}

// foundLocked takes over the label of a volume that the disk tells of. What another
// agent did not write down of the volume it may have written down of a pod's.
func (v *Volumes) foundLocked(d *device, label string) {
	if label != "" && v.cfg.Labels != nil { // else it was mounted by another kernel
		d.label, d.has = label, label
	}
}
