//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson/test/images"
	"keelson/test/rig"
)

// TestTrust mounts a ClusterTrustBundle and a certificate of a signer in a pod, with an
// API server that authorizes the requests of the node and of the signer.
func TestTrust(t *testing.T) {
	r := rig.Start(t, rig.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	binary, err := rig.OurKubelet(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c, err := r.StartCluster(
		ctx,
		rig.ClusterConfig{
			APIServerFlags: []string{
				"--feature-gates=ClusterTrustBundle=true,ClusterTrustBundleProjection=true,PodCertificateRequest=true",
			},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	k, err := r.StartKubelet(ctx, rig.KubeletConfig{Binary: binary, Edit: func(k *kubeletconfig.KubeletConfiguration) {
		quick(k)
		k.FeatureGates = map[string]bool{
			"ClusterTrustBundle":           true,
			"ClusterTrustBundleProjection": true,
			"PodCertificateRequest":        true,
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "ca"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(48 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	root := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	certs := c.Client.CertificatesV1beta1()
	if _, err := certs.ClusterTrustBundles().Create(ctx,
		&certificatesv1beta1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: "example.com:s:one"},
			Spec: certificatesv1beta1.ClusterTrustBundleSpec{
				SignerName:  "example.com/s",
				TrustBundle: string(root),
			}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	signer := "example.com/s"
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name:      "web",
		Namespace: "default",
	}, Spec: corev1.PodSpec{NodeName: k.Node,
		Containers: []corev1.Container{
			{
				Name:         "main",
				Image:        images.Demo,
				Args:         []string{"serve"},
				VolumeMounts: []corev1.VolumeMount{{Name: "creds", MountPath: "/creds"}},
			},
		},
		Volumes: []corev1.Volume{{Name: "creds",
			VolumeSource: corev1.VolumeSource{
				Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
					{
						ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{
							SignerName:    &signer,
							LabelSelector: &metav1.LabelSelector{},
							Path:          "ca.pem",
						},
					},
					{
						PodCertificate: &corev1.PodCertificateProjection{
							SignerName:           signer,
							KeyType:              "ED25519",
							CredentialBundlePath: "both.pem",
						},
					},
				}},
			}}}}}
	eventually(t, "the service account", func() bool {
		_, err := c.Client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err == nil
	})
	if p, err = c.Client.CoreV1().Pods("default").Create(ctx, p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var request *certificatesv1beta1.PodCertificateRequest
	eventually(t, "a request for a certificate", func() bool {
		list, err := certs.PodCertificateRequests("default").List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) == 0 {
			return false
		}
		request = &list.Items[0]
		return true
	})
	csr, err := x509.ParseCertificateRequest(request.Spec.StubPKCS10Request)
	if err != nil || request.Spec.PodUID != p.UID || string(request.Spec.NodeName) != k.Node {
		t.Fatalf("request %+v, %v", request.Spec, err)
	}
	now := time.Now().Truncate(time.Second)
	leaf, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2),
		NotBefore:    now,
		NotAfter:     now.Add(24 * time.Hour),
	}, ca, csr.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	from, begin, end := metav1.NewTime(now), metav1.NewTime(now.Add(12*time.Hour)),
		metav1.NewTime(now.Add(24*time.Hour))
	request.Status = certificatesv1beta1.PodCertificateRequestStatus{CertificateChain: string(
		pem.EncodeToMemory(&pem.Block{
			Type:  "CERTIFICATE",
			Bytes: leaf,
		})),
		NotBefore: &from, BeginRefreshAt: &begin, NotAfter: &end,
		Conditions: []metav1.Condition{
			{
				Type:               "Issued",
				Status:             metav1.ConditionTrue,
				Reason:             "Signed",
				Message:            "by hand",
				LastTransitionTime: from,
			},
		}}
	if _, err := certs.PodCertificateRequests("default").UpdateStatus(ctx, request,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.UntilPod(ctx, "default", "web", rig.PodReady); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(k.Root, "pods", string(p.UID), "volumes/kubernetes.io~projected/creds")
	both, err := os.ReadFile(filepath.Join(dir, "both.pem"))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(both, both)
	if err != nil || !bytes.Equal(pair.Certificate[0], leaf) {
		t.Errorf("the pod is shown another certificate: %v", err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "ca.pem")); err != nil || !bytes.Equal(got, root) {
		t.Errorf("the trust bundle is %s, %v", got, err)
	}
}
