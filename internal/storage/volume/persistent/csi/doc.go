// Package csi brings volumes of CSI drivers to the node: it stages and publishes
// through the driver's node service, and shows the API server which drivers the
// node has.
//
// It owns the table of drivers that registered ([Drivers]), the records of
// volumes beside their directories (vol_data.json), and this node's CSINode object
// ([Shown]). Everything else is the driver's, and is asked of it.
//
//	driver:  unknown ─► registered ─► unknown
//	volume:  record written ─► call under way ─► done ─► undone ─► record removed
//
// A driver may hang, lie or vanish. Every call has a limit, calls for one volume
// are made in turn (package persistent sees to it), and nothing waits for a driver
// but the volumes that are its own. An answer that leaves open whether the call
// had an effect is told from one that does not: what may be staged or published is
// unstaged and unpublished in the end.
//
// Lock order: Drivers.mu and Shown.mu are taken alone.
package csi
