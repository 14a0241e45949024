package config

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson/test/kit/fakecri"
	"keelson/test/kit/parity"
	"keelson/test/script"
)

// sign issues certificates for the pending PodCertificateRequests, and returns the number of all requests.
func sign(t *testing.T, r *script.Run, ca *issuer, life time.Duration) int {
	t.Helper()
	requests := r.API.CertificatesV1beta1().PodCertificateRequests(script.Namespace)
	list, err := requests.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		q := &list.Items[i]
		if len(q.Status.Conditions) > 0 {
			continue
		}
		csr, err := x509.ParseCertificateRequest(q.Spec.StubPKCS10Request)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
			SerialNumber: big.NewInt(int64(i + 1)),
			NotBefore:    now,
			NotAfter:     now.Add(life),
		}, ca.cert, csr.PublicKey, ca.key)
		if err != nil {
			t.Fatal(err)
		}
		begin, end, from := metav1.NewTime(now.Add(life/2)), metav1.NewTime(now.Add(life)), metav1.NewTime(now)
		q.Status = certificatesv1beta1.PodCertificateRequestStatus{CertificateChain: string(
			pem.EncodeToMemory(&pem.Block{
				Type:  "CERTIFICATE",
				Bytes: der,
			})),
			NotBefore: &from, BeginRefreshAt: &begin, NotAfter: &end,
			Conditions: []metav1.Condition{
				{Type: "Issued", Status: metav1.ConditionTrue, Reason: "Signed", LastTransitionTime: from},
			}}
		if _, err := requests.UpdateStatus(t.Context(), q, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return len(list.Items)
}

const trustPod = `spec:
  automountServiceAccountToken: false
  serviceAccountName: robot
  containers: [{name: main, volumeMounts: [{name: creds, mountPath: /creds}]}]
  volumes:
  - name: creds
    projected:
      sources:
      - clusterTrustBundle: {name: roots, path: ca.pem}
      - podCertificate: {signerName: example.com/s, keyType: ECDSAP256, credentialBundlePath: both.pem}
`

// TestTrustAndCertificates: a pod starts when its certificate is issued, and its file is updated when the next one is
// issued. The file of a trust bundle follows its object.
func TestTrustAndCertificates(t *testing.T) {
	ca := newIssuer(t)
	script.Settled(t,
		"featureGates: {ClusterTrustBundle: true, ClusterTrustBundleProjection: true, PodCertificateRequest: true}\n",
		nil, func(t *testing.T, r *script.Run) {
			certs := r.API.CertificatesV1beta1()
			if n := len(r.Asked("list", "clustertrustbundles")) + len(r.Asked("list", "podcertificaterequests")) +
				len(r.Asked("watch", "clustertrustbundles")) + len(r.Asked("watch", "podcertificaterequests")); n > 0 {
				t.Errorf("%d requests about trust, and no pod needs it", n)
			}
			if _, err := r.API.CoreV1().ServiceAccounts(script.Namespace).Create(t.Context(),
				&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}},
				metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			roots := &certificatesv1beta1.ClusterTrustBundle{
				ObjectMeta: metav1.ObjectMeta{Name: "roots"},
				Spec:       certificatesv1beta1.ClusterTrustBundleSpec{TrustBundle: string(ca.pem)},
			}
			roots, err := certs.ClusterTrustBundles().Create(t.Context(), roots, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			r.Pod(t, "web", trustPod)
			time.Sleep(10 * time.Second)
			uid := string(r.Server.Pod(script.Namespace, "web").UID)
			read := func(name string) []byte {
				b, err := os.ReadFile(filepath.Join(r.Path("kubelet/pods"), uid,
					"volumes/kubernetes.io~projected/creds", name))
				if err != nil && !os.IsNotExist(err) {
					t.Error(err)
				}
				return b
			}
			if slices.ContainsFunc(r.Runtime.Pods(), func(p fakecri.Pod) bool { return len(p.Containers) > 0 }) {
				t.Error("a container was made before the signer answered")
			}
			if n := sign(t, r, ca, time.Hour); n != 1 {
				t.Fatalf("%d requests", n)
			}
			r.Must(t, "wait", "web", "Ready")
			first := read("both.pem")
			if _, err := tls.X509KeyPair(first, first); err != nil ||
				!bytes.HasPrefix(first, []byte("-----BEGIN PRIVATE KEY-----\n")) {
				t.Errorf("the credential bundle: %v", err)
			}
			if !bytes.Equal(read("ca.pem"), ca.pem) {
				t.Errorf("the trust bundle is\n%s", read("ca.pem"))
			}
			other := newIssuer(t)
			roots.Spec.TrustBundle = string(other.pem)
			if _, err := certs.ClusterTrustBundles().Update(t.Context(), roots, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if !bytes.Equal(read("ca.pem"), other.pem) {
				t.Error("the trust bundle does not follow its object")
			}
			time.Sleep(36 * time.Minute) // half of the validity, and up to five minutes
			if n := sign(t, r, ca, time.Hour); n != 2 {
				t.Fatalf("%d requests after the time to refresh", n)
			}
			time.Sleep(time.Second)
			next := read("both.pem")
			if _, err := tls.X509KeyPair(next, next); err != nil || bytes.Equal(next, first) {
				t.Errorf("the bundle is not refreshed: %v", err)
			}
			r.Must(t, "delete", "web")
			r.Must(t, "wait", "web", "gone")
			if got := r.Must(t, "left"); got != "nothing\n" {
				t.Errorf("left: %s", got)
			}
		})
	// With the gates off, pods with such sources wait, and an event reports the reason.
	script.Settled(t, "", nil, func(t *testing.T, r *script.Run) {
		r.Pod(t, "web", trustPod)
		time.Sleep(10 * time.Second)
		if got := r.Must(t, "events", "web"); !strings.Contains(got,
			"projected source clusterTrustBundle is not supported by this node") {
			t.Errorf("events: %s", got)
		}
	})
	parity.ProvesPart(t, 4, "VOL-48")
	parity.ProvesPart(t, 6, "VOL-49")
}
