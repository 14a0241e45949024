package eviction

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"keelson/internal/pods/pod"
)

// Breach is a pod that exceeds a limit of local ephemeral storage.
type Breach struct {
	Pod     *v1.Pod
	Signal  Signal // label of the metric
	Message string
}

// Limited reports whether the pod has a limit of local ephemeral storage.
func Limited(p *v1.Pod) bool {
	for i := range p.Spec.Volumes {
		if e := p.Spec.Volumes[i].EmptyDir; e != nil && e.SizeLimit != nil && e.SizeLimit.Sign() > 0 {
			return true
		}
	}
	_, total := totalLimit(p)
	return total
}

// Breaches returns the pods that exceed a limit of their own: of an emptyDir volume, of the pod, or of a container.
// Critical pods are exempt. What could not be measured does not exceed any limit.
func Breaches(from []Candidate, d Disks, now time.Time) []Breach {
	var out []Breach
	for _, c := range from {
		if pod.IsCritical(c.Pod) || now.Sub(c.Use.At) > stale {
			continue
		}
		for _, check := range []func(Candidate, Disks) (Signal, string){volumeOver, totalOver, containerOver} {
			if signal, message := check(c, d); message != "" {
				out = append(out, Breach{c.Pod, signal, message})
				break
			}
		}
	}
	return out
}

func volumeOver(c Candidate, _ Disks) (Signal, string) {
	for i := range c.Pod.Spec.Volumes {
		v := &c.Pod.Spec.Volumes[i]
		if v.EmptyDir == nil || v.EmptyDir.SizeLimit == nil || v.EmptyDir.SizeLimit.Sign() <= 0 {
			continue
		}
		used, known := c.Use.Volumes[v.Name]
		if known && bytes(used.Bytes).Cmp(*v.EmptyDir.SizeLimit) > 0 {
			return signalEmptyDir, fmt.Sprintf(messageEmptyDir, v.Name, v.EmptyDir.SizeLimit)
		}
	}
	return "", ""
}

func totalOver(c Candidate, _ Disks) (Signal, string) {
	limit, set := totalLimit(c.Pod)
	if !set {
		return "", ""
	}
	used := c.Use.space(inLogs | inLayers | inVolumes) // regardless of their file systems
	used.add(c.Use.Own)
	if bytes(used.Bytes).Cmp(limit) > 0 {
		return signalPod, fmt.Sprintf(messageTotal, &limit)
	}
	return "", ""
}

// totalLimit returns the sum of the limits of the containers that have one.
func totalLimit(p *v1.Pod) (resource.Quantity, bool) {
	q, set := resourcehelper.PodLimits(p, resourcehelper.PodResourcesOptions{})[v1.ResourceEphemeralStorage]
	return q, set && q.Sign() > 0
}

// containerOver checks regular containers only, as upstream. Limits of other containers count for the pod's limit.
// Writable layers count if there is no separate image file system.
func containerOver(c Candidate, d Disks) (Signal, string) {
	counted := inLogs
	if !d.Images {
		counted |= inLayers
	}
	for _, u := range c.Use.Containers {
		kind, spec, ok := pod.Find(c.Pod, u.Name)
		if !ok || kind != pod.Regular {
			continue
		}
		limit, set := spec.Resources.Limits[v1.ResourceEphemeralStorage]
		if !set || limit.Sign() <= 0 {
			continue
		}
		of := Use{Containers: []ContainerUse{u}}
		if bytes(of.space(counted).Bytes).Cmp(limit) > 0 {
			return signalContainer, fmt.Sprintf(messageLimit, u.Name, &limit)
		}
	}
	return "", ""
}

func bytes(n uint64) *resource.Quantity { return resource.NewQuantity(int64(n), resource.BinarySI) }
