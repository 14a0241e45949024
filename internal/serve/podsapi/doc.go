// Package podsapi serves the pods of the node over a socket: the service v1alpha1.Pods (gate PodsAPI), with a list, a
// get by UID, and a watch.
//
// It keeps no copy of a pod. A watch has the set of pods that may have changed since it sent them, and reads them again
// when it sends. A slow watcher gets fewer and later events, never wrong ones, and the size of the set is bounded by
// the number of pods.
//
// Locks: Server.mu guards the set of watches, and watch.mu the pending pods of one watch. Neither is held during a call
// to another part.
package podsapi
