// Package userns allocates ranges of user and group IDs of the node to pods in user namespaces (hostUsers: false,
// KEP-127). It owns which pod has which range. Ranges do not overlap.
//
// A range is recorded in the pod's directory before the pod uses it, in upstream's file and format, and restored from
// there after a restart, because the files in the pod's volumes belong to its IDs. It is free again when the pod is
// released, and reused as late as possible. States of a range, forward only for one pod:
//
//	free → recorded on disk → free
package userns
