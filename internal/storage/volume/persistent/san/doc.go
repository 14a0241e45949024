// Package san brings disks of storage networks to the node: iSCSI, by the machine's
// iscsiadm, and Fibre Channel, by the kernel. What a pod gets is a file system on
// such a disk, or the disk.
//
//	plugins/kubernetes.io/iscsi/iface-<iface>/<portal>-<iqn>-lun-<lun>   mounted for the node
//	plugins/kubernetes.io/fc/<wwn>-lun-<lun>                              likewise
//	…/<the same>.json                                                     the record of it
//
// The record is written before the first step and removed after the last one is
// undone: what it names is detached, as far as it came. Disks of several paths are
// used by their multipath device, where there is one.
//
//	(nothing) ─ record ─► logged in ─► device ─► mounted for the node ─► pods
package san
