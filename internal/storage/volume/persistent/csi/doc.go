// Package csi implements volumes of CSI drivers: it stages and publishes them through the driver's
// node service, and publishes the node's drivers in its CSINode.
//
// It owns the table of registered drivers ([Drivers]), the records of volumes in their directories
// (vol_data.json), and this node's CSINode object ([NodeInfoManager]). All other state is the driver's.
//
//	driver:  unknown ─► registered ─► unknown
//	volume:  record written ─► call under way ─► done ─► undone ─► record removed
//
// A driver may hang, violate the protocol, or disappear. Every call has a timeout, calls for one
// volume are sequential (ensured by package persistent), and only a driver's own volumes wait for
// it. Errors after which the effect of a call is unknown are distinguished from others: what may be
// staged or published will be unstaged and unpublished.
//
// Lock order: Drivers.mu and NodeInfoManager.mu are taken alone.
package csi
