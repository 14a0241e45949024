// Package podsapi tells programs of the node about its pods, over a socket, under the
// service v1alpha1.Pods (gate PodsAPI): as a list, one by its UID, or as a watch.
//
// It keeps no copy of a pod. A watch has a set of the pods that may be others than it
// was told last; whoever changes a pod adds to it, and the watch reads them again. So
// a watcher that is slow gets fewer and later pictures, never wrong ones, and what
// waits for it is bounded by the number of pods.
//
// Locks: Server.mu guards the set of watches, watch.mu what one is still to be told;
// neither is held over a call to the outside.
package podsapi
