// Package builtin holds the kinds of volumes that a node serves by itself:
// emptyDir, configMap, secret, downwardAPI, projected and image.
//
// It owns no state: each kind works from what is on the disk. A volume whose
// making was finished has a marker file; without it, everything is done again,
// which never loses what a container wrote, because no container has seen such
// a volume.
//
//	no directory ─► directory ─► (tmpfs) ─► content, group ─► marker
//
// It is taken away in the other order, the marker first, so that a volume is
// found by its directory for as long as anything of it is left.
//
// configMap, secret, downwardAPI and projected are one kind of volume with four
// sources: files that the agent writes and containers only read. A writer swaps
// all of them at once:
//
//	name        ─► ..data/name        what containers open
//	..data      ─► ..2026_01_02_…     what is swapped, by a rename
//	..2026_01_02_03_04_05.123/name    one generation of the files
package builtin
