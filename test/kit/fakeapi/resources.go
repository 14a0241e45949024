package fakeapi

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// resource is one kind of object that the server keeps.
type resource struct {
	gvk        schema.GroupVersionKind
	name       string // plural, as in paths
	namespaced bool
	status     bool // has a status subresource
	generation bool // counts changes of the spec
}

func (r *resource) gvr() schema.GroupVersionResource {
	return r.gvk.GroupVersion().WithResource(r.name)
}

func (r *resource) list() schema.GroupVersionKind {
	return r.gvk.GroupVersion().WithKind(r.gvk.Kind + "List")
}

// resources by group, version and plural.
var resources = func() map[schema.GroupVersionResource]*resource {
	m := map[schema.GroupVersionResource]*resource{}
	add := func(group, version, kind, plural string, namespaced, status bool) {
		r := &resource{
			gvk:        schema.GroupVersionKind{Group: group, Version: version, Kind: kind},
			name:       plural,
			namespaced: namespaced,
			status:     status,
		}
		r.generation = plural == "pods"
		m[r.gvr()] = r
	}
	add("", "v1", "Namespace", "namespaces", false, true)
	add("", "v1", "Node", "nodes", false, true)
	add("", "v1", "PersistentVolume", "persistentvolumes", false, true)
	add("", "v1", "Pod", "pods", true, true)
	add("", "v1", "ConfigMap", "configmaps", true, false)
	add("", "v1", "Secret", "secrets", true, false)
	add("", "v1", "Service", "services", true, true)
	add("", "v1", "ServiceAccount", "serviceaccounts", true, false)
	add("", "v1", "Event", "events", true, false)
	add("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", true, true)
	add("events.k8s.io", "v1", "Event", "events", true, false)
	add("coordination.k8s.io", "v1", "Lease", "leases", true, false)
	add("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", false, false)
	add("storage.k8s.io", "v1", "CSIDriver", "csidrivers", false, false)
	add("storage.k8s.io", "v1", "CSINode", "csinodes", false, false)
	add("storage.k8s.io", "v1", "StorageClass", "storageclasses", false, false)
	add("storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments", false, true)
	add("certificates.k8s.io", "v1", "CertificateSigningRequest", "certificatesigningrequests", false, true)
	add("certificates.k8s.io", "v1beta1", "ClusterTrustBundle", "clustertrustbundles", false, false)
	add("certificates.k8s.io", "v1beta1", "PodCertificateRequest", "podcertificaterequests", true, true)
	add("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", true, true)
	add("resource.k8s.io", "v1", "ResourceSlice", "resourceslices", false, false)
	return m
}()
