// Package podresources serves which devices, CPUs and memory are allocated exclusively to containers, over a socket:
// the services v1.PodResourcesLister and v1alpha1.PodResourcesLister (KEP-606). Its calls return the resources of the
// pods that use the node, those of one pod, or the allocatable resources of the node.
//
// It has no state: each call reads the state of the resource managers.
package podresources
