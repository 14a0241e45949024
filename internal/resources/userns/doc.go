// Package userns gives pods that ask for users of their own (hostUsers: false,
// KEP-127) a range of the node's user and group IDs. It owns which pod has which
// range; no two pods share one.
//
// A range is written to the pod's directory before the pod uses it, in the file
// and form that upstream's agent reads, and is found there after a restart: the
// files in the pod's volumes belong to it. It is free again when the pod is
// released, and rests then while there are others. States of a range, forward only
// for one pod:
//
//	free → recorded on disk → free
package userns
