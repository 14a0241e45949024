// Package nfs mounts NFS exports for pods, with the node's mount helper. Each pod has its own
// mount; the kernel shares the connection.
//
//	<root>/pods/<uid>/volumes/kubernetes.io~nfs/<volume>
//
// A server that does not respond only affects the pods that use it. The mount of a terminated pod
// is unmounted, then unmounted by force, and at last detached lazily.
package nfs
