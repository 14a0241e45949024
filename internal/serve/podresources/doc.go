// Package podresources serves which devices, CPUs and memory are allocated exclusively to containers, over a socket:
// the services v1.PodResourcesLister and v1alpha1.PodResourcesLister (KEP-606). It lists the pods that take up the
// node, one pod, or the allocatable resources.
//
// It has no state: each call asks the managers.
package podresources
