package cgroup

import (
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// name is the name of a cgroup, independent of the driver: its components below the root of the hierarchies.
type name []string

func (n name) child(c string) name { return append(n[:len(n):len(n)], c) }

// podsName returns the name of the cgroup of all pods. root is the configured prefix.
func podsName(root string) name {
	var n name
	for c := range strings.SplitSeq(root, "/") {
		if c != "" {
			n = n.child(c)
		}
	}
	return n.child(rootName)
}

// qosName returns the name of the parent of pods of a QoS class.
func (n name) qosName(c v1.PodQOSClass) name {
	switch c {
	case v1.PodQOSBurstable:
		return n.child(burstableName)
	case v1.PodQOSBestEffort:
		return n.child(bestEffortName)
	default:
		return n
	}
}

func podName(uid types.UID) string { return podPrefix + string(uid) }

// path returns the path of n in a hierarchy.
func (n name) path(d Driver) string {
	if d != Systemd {
		return "/" + path.Join(n...)
	}
	// The name of a slice contains those of its parents: /a.slice/a-b.slice.
	p, prefix := "/", ""
	for _, c := range n {
		prefix += escape(c)
		p = path.Join(p, prefix+sliceSuffix)
		prefix += "-"
	}
	return p
}

// slice returns the name of the unit for n, and of its parent ("-.slice" for none).
func (n name) slice() (unit, parent string) {
	dir, unit := path.Split(n.path(Systemd))
	if parent = path.Base(dir); parent == "/" {
		parent = "-" + sliceSuffix
	}
	return unit, parent
}

// nameOfSlice returns the name for the path of a slice.
func nameOfSlice(p string) (name, bool) {
	base, ok := strings.CutSuffix(path.Base(p), sliceSuffix)
	if !ok {
		return nil, false
	}
	n := name(strings.Split(base, "-"))
	return n, n.path(Systemd) == path.Clean("/"+p)
}

// escape replaces dashes, which separate levels in the name of a slice.
func escape(component string) string { return strings.ReplaceAll(component, "-", "_") }

// uidOf returns the UID of the pod from the last component of a cgroup path. ok is false if it is not that of a pod.
func uidOf(base string, d Driver) (uid types.UID, ok bool) {
	if d == Systemd {
		base, ok = strings.CutSuffix(base, sliceSuffix)
		if !ok {
			return "", false
		}
		base = base[strings.LastIndexByte(base, '-')+1:]
		base = strings.ReplaceAll(base, "_", "-")
	}
	id, ok := strings.CutPrefix(base, podPrefix)
	return types.UID(id), ok && id != ""
}
