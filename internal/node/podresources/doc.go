// Package podresources tells programs of the node which devices, CPUs and memory each
// container has for itself, over a socket, under the services v1.PodResourcesLister
// and v1alpha1.PodResourcesLister (KEP-606): of all pods that take up the node, of one,
// and what of it there is at all.
//
// It keeps nothing: each call asks those who hand it out.
package podresources
