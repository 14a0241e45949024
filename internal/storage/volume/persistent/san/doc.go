// Package san implements iSCSI volumes, with the node's iscsiadm, and Fibre Channel volumes, with
// the kernel. A pod gets the file system of such a disk, or the block device.
//
//	plugins/kubernetes.io/iscsi/iface-<iface>/<portal>-<iqn>-lun-<lun>   the staged file system
//	plugins/kubernetes.io/fc/<wwn>-lun-<lun>                              likewise
//	…/<the same>.json                                                     its record
//
// The record is written before the first step and removed after the last one is undone: the disk
// that it names is detached, even if it was attached only partly. Disks with several paths are used
// through their multipath device, if there is one.
//
//	(nothing) ─ record ─► logged in ─► device ─► staged ─► pods
package san
