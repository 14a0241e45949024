// Package builtin implements the kinds of volumes that a node serves by itself: emptyDir,
// configMap, secret, downwardAPI, projected and image.
//
// It has no state: each kind works from what is on the disk. A complete volume has a marker file.
// Without it all steps are repeated, which never loses data of a container, since no container has
// started with such a volume.
//
//	no directory ─► directory ─► (tmpfs) ─► content, group ─► marker
//
// A volume is released in reverse order, the marker first, so that it can be found by its directory
// until the end.
//
// configMap, secret, downwardAPI and projected are one implementation with four sources: files that
// the agent writes and containers only read. All files are replaced atomically:
//
//	name        ─► ..data/name        what containers open
//	..data      ─► ..2026_01_02_…     replaced by a rename
//	..2026_01_02_03_04_05.123/name    one generation of the files
package builtin
