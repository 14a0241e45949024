package cgroup

import (
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// name is a place in the tree, independent of the driver: the components below
// the root of all hierarchies.
type name []string

func (n name) child(c string) name { return append(n[:len(n):len(n)], c) }

// podsName is where all pods live; root is the configured prefix.
func podsName(root string) name {
	var n name
	for c := range strings.SplitSeq(root, "/") {
		if c != "" {
			n = n.child(c)
		}
	}
	return n.child(rootName)
}

// qosName is the parent of the pods of a class.
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

// path is the absolute path of n in a hierarchy.
func (n name) path(d Driver) string {
	if d != Systemd {
		return "/" + path.Join(n...)
	}
	// A slice's name tells all its parents, so each component of the path
	// repeats the one before: /a.slice/a-b.slice.
	p, prefix := "/", ""
	for _, c := range n {
		prefix += escape(c)
		p = path.Join(p, prefix+sliceSuffix)
		prefix += "-"
	}
	return p
}

// slice is the name of the unit for n, and of its parent ("-.slice" for none).
func (n name) slice() (unit, parent string) {
	dir, unit := path.Split(n.path(Systemd))
	if parent = path.Base(dir); parent == "/" {
		parent = "-" + sliceSuffix
	}
	return unit, parent
}

// nameOfSlice is the name whose path is a slice's, below slices only.
func nameOfSlice(p string) (name, bool) {
	base, ok := strings.CutSuffix(path.Base(p), sliceSuffix)
	if !ok {
		return nil, false
	}
	n := name(strings.Split(base, "-"))
	return n, n.path(Systemd) == path.Clean("/"+p)
}

// escape keeps a dash from being read as a step down in a slice's name.
func escape(component string) string { return strings.ReplaceAll(component, "-", "_") }

// uidOf reads a pod's UID from the last component of its path; ok is false for
// anything that is not a pod's.
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
