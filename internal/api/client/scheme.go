package client

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// kinds are the types that the agent reads and writes, by API group. A new one needs an entry here and a field of
// Client.
var kinds = map[schema.GroupVersion][]runtime.Object{
	corev1.SchemeGroupVersion: {
		&corev1.Pod{}, &corev1.PodList{},
		&corev1.Node{}, &corev1.NodeList{},
		&corev1.Event{}, &corev1.EventList{},
		&corev1.Service{}, &corev1.ServiceList{},
		&corev1.ConfigMap{}, &corev1.ConfigMapList{},
		&corev1.Secret{}, &corev1.SecretList{},
		&corev1.ServiceAccount{}, &corev1.ServiceAccountList{},
		&corev1.PersistentVolume{}, &corev1.PersistentVolumeList{},
		&corev1.PersistentVolumeClaim{}, &corev1.PersistentVolumeClaimList{},
	},
	coordinationv1.SchemeGroupVersion: {&coordinationv1.Lease{}, &coordinationv1.LeaseList{}},
	authenticationv1.SchemeGroupVersion: {
		&authenticationv1.TokenReview{}, &authenticationv1.TokenRequest{},
	},
	authorizationv1.SchemeGroupVersion: {&authorizationv1.SubjectAccessReview{}},
	storagev1.SchemeGroupVersion: {
		&storagev1.CSINode{}, &storagev1.CSINodeList{},
		&storagev1.CSIDriver{}, &storagev1.CSIDriverList{},
		&storagev1.VolumeAttachment{}, &storagev1.VolumeAttachmentList{},
	},
	nodev1.SchemeGroupVersion: {&nodev1.RuntimeClass{}, &nodev1.RuntimeClassList{}},
	claimGroup:                {}, // see ResourceClaim
	certificatesv1.SchemeGroupVersion: {
		&certificatesv1.CertificateSigningRequest{}, &certificatesv1.CertificateSigningRequestList{},
	},
	certificatesv1beta1.SchemeGroupVersion: {
		&certificatesv1beta1.ClusterTrustBundle{}, &certificatesv1beta1.ClusterTrustBundleList{},
		&certificatesv1beta1.PodCertificateRequest{}, &certificatesv1beta1.PodCertificateRequestList{},
	},
}

// Scheme has exactly the types that the agent uses.
var Scheme = newScheme()

// Codecs encodes and decodes the types of Scheme.
var Codecs = serializer.NewCodecFactory(Scheme)

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	for gv, objects := range kinds {
		s.AddKnownTypes(gv, objects...)
		metav1.AddToGroupVersion(s, gv)
	}
	utilruntime.Must(metav1.AddMetaToScheme(s))
	return s
}
