//go:build e2e

package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson/test/kit/await"
	"keelson/test/kit/parity"
	"keelson/test/rig"
)

// signedFor is how long certificates of the join test are valid. The signer backdates
// them by five minutes, so most of their lifetime is over when they are issued and the
// agent renews them soon.
const signedFor = 90 * time.Second

// TestJoin starts a node that only has a bootstrap token. The controllers of a real
// control plane approve and sign its requests.
func TestJoin(t *testing.T) {
	parity.ProvesPart(t, 2, "CFG-27")
	parity.ProvesPart(t, 3, "CFG-28")
	parity.ProvesPart(t, 3, "CFG-110")
	parity.ProvesPart(t, 4, "CFG-130")
	r := rig.Start(t, rig.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	binary, err := rig.OurKubelet(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c, err := r.StartCluster(ctx, rig.ClusterConfig{APIServerFlags: []string{"--enable-bootstrap-token-auth"},
		ControllerManagerFlags: []string{"--cluster-signing-duration=" + signedFor.String()}})
	if err != nil {
		t.Fatal(err)
	}
	token := allowJoining(ctx, t, c)
	go approveServing(ctx, t, c)

	begin := time.Now()
	k, err := r.StartKubelet(ctx,
		rig.KubeletConfig{Binary: binary, BootstrapToken: token, Edit: func(k *kubeletconfig.KubeletConfiguration) {
			quick(k)
			k.RotateCertificates, k.ServerTLSBootstrap = true, true
			k.TLSCertFile, k.TLSPrivateKeyFile = "", ""
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("joined and Ready after %v", time.Since(begin).Round(10*time.Millisecond))
	pki := filepath.Join(k.Root, "pki")
	first := inForce(t, pki, "kubelet-client")
	if first.Subject.String() != "CN=system:node:"+k.Node+",O=system:nodes" {
		t.Errorf("certificate for %s", first.Subject)
	}
	text, err := os.ReadFile(k.Kubeconfig)
	if err != nil || !strings.Contains(string(text), filepath.Join(pki, "kubelet-client-current.pem")) ||
		strings.Contains(string(text), token) {
		t.Errorf("kubeconfig, %v:\n%s", err, text)
	}
	if _, err := os.Stat(filepath.Join(pki, "kubelet-client.key.tmp")); err == nil {
		t.Error("the temporary key is left")
	}
	asked := signingRequests(ctx, t, c, certificatesv1.KubeAPIServerClientKubeletSignerName)
	// A certificate whose renewal is due at once may be renewed within the second of the first request.
	if !slices.ContainsFunc(asked, func(q certificatesv1.CertificateSigningRequest) bool {
		return q.CreationTimestamp.Equal(&asked[0].CreationTimestamp) &&
			q.Spec.Username == "system:bootstrap:"+strings.Split(token, ".")[0]
	}) {
		t.Errorf("requests: %+v", asked)
	}
	served := untilServed(ctx, t, k, c)
	if err := served.VerifyHostname(r.NodeIP()); err != nil {
		t.Error(err)
	}

	// The client's certificate is renewed with itself, and so is the server's.
	var second *x509.Certificate
	eventually(t, "another client certificate", func() bool {
		second = inForce(t, pki, "kubelet-client")
		return !second.Equal(first)
	})
	list := signingRequests(ctx, t, c, certificatesv1.KubeAPIServerClientKubeletSignerName)
	// Requests of the same second have no order.
	if n := len(list); n < 2 || !slices.ContainsFunc(list, func(q certificatesv1.CertificateSigningRequest) bool {
		return q.CreationTimestamp.Equal(&list[n-1].CreationTimestamp) && q.Spec.Username == "system:node:"+k.Node
	}) {
		t.Errorf("%d requests, of the last second none by the node: %+v", n, list)
	}
	eventually(t, "another serving certificate", func() bool {
		now, err := handshake(k)
		return err == nil && !now.Equal(served)
	})
	var metrics string
	eventually(t, "a rotation among the metrics", func() bool { // counted after it is in force
		var err error
		metrics, err = k.Get(ctx, "/metrics")
		return err == nil && !strings.Contains(metrics, "rotation_seconds_count 0\n")
	})
	// On a busy machine a request may time out, which counts as an error, and is tried again.
	for _, line := range []string{"kubelet_certificate_manager_client_ttl_seconds ",
		"kubelet_certificate_manager_client_expiration_renew_errors ",
		"kubelet_certificate_manager_server_ttl_seconds ",
		"kubelet_certificate_manager_server_rotation_seconds_count ", "kubelet_server_expiration_renew_errors "} {
		if !strings.Contains(metrics, "\n"+line) {
			t.Errorf("no %q among the metrics", line)
		}
	}
	if strings.Contains(metrics, "certificate_manager_client_ttl_seconds +Inf\n") {
		t.Error("the metrics know nothing of the certificates")
	}
	if n, err := c.UntilNode(ctx, k.Node, rig.NodeReady); err != nil {
		t.Error(n, err)
	}

	// The certificate expires while the agent is down: the agent uses the bootstrap token again.
	k.Kill9()
	down := inForce(t, pki, "kubelet-client")
	before := map[string]bool{}
	for _, r := range signingRequests(ctx, t, c, certificatesv1.KubeAPIServerClientKubeletSignerName) {
		before[r.Name] = true
	}
	select {
	case <-ctx.Done():
		t.Fatal(ctx.Err())
	case <-time.After(time.Until(down.NotAfter.Add(time.Second))):
	}
	if err := k.Start(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a certificate after the one before expired",
		func() bool { return time.Now().Before(inForce(t, pki, "kubelet-client").NotAfter) })
	again := false
	for _, r := range signingRequests(ctx, t, c, certificatesv1.KubeAPIServerClientKubeletSignerName) {
		again = again || !before[r.Name] && strings.HasPrefix(r.Spec.Username, "system:bootstrap:")
	}
	if !again {
		t.Error("nothing was asked for with the token again")
	}

	// The current certificate is damaged while the agent is down.
	reportedBefore := map[string]bool{} // certificates of the same second have the same name
	for name, spoil := range spoilings {
		k.Stop()
		file, err := filepath.EvalSymlinks(filepath.Join(pki, "kubelet-client-current.pem"))
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, spoil(t, text, k.Node), 0o600); err != nil {
			t.Fatal(err)
		}
		begin = time.Now()
		if err := k.Start(ctx); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a heartbeat after the start with a certificate that is "+name, func() bool {
			lease, err := c.Client.CoordinationV1().Leases("kube-node-lease").Get(ctx, k.Node, metav1.GetOptions{})
			return err == nil && lease.Spec.RenewTime.After(begin)
		})
		t.Logf("%s: a heartbeat after %v", name, time.Since(begin).Round(100*time.Millisecond))
		reported, events := 0, ""
		var names []string
		eventually(t, "an event about a certificate that is "+name, func() bool {
			list, err := c.Client.CoreV1().Events("default").List(ctx,
				metav1.ListOptions{FieldSelector: "reason=StateFileUnusable"})
			if err != nil {
				t.Fatal(err)
			}
			reported, events, names = 0, "", nil
			for _, e := range list.Items {
				if strings.HasPrefix(e.Message, "use "+file+": ") && !reportedBefore[e.Name] {
					names = append(names, e.Name)
					reported += int(e.Count)
					events += fmt.Sprintf("\n%s %d times from %v to %v: %s", e.Name, e.Count, e.FirstTimestamp.Time,
						e.LastTimestamp.Time, e.Message)
				}
			}
			return reported > 0
		})
		for _, e := range names {
			reportedBefore[e] = true
		}
		if _, err := os.Stat(file + ".bad"); reported != 1 || err != nil {
			t.Errorf("%s: reported %d times, %v%s", name, reported, err, events)
		}
	}
}

// spoilings are the ways in which a certificate can be damaged while no agent runs.
var spoilings = map[string]func(t *testing.T, text []byte, node string) []byte{
	"cut short":   func(_ *testing.T, text []byte, _ string) []byte { return text[:300] },
	"bit flipped": func(_ *testing.T, text []byte, _ string) []byte { text[200] ^= 4; return text },
	"of another key": func(t *testing.T, text []byte, node string) []byte {
		_, key := foreign(t, node)
		cert, _ := pem.Decode(text)
		return append(pem.EncodeToMemory(cert), key...)
	},
	"of another authority": func(t *testing.T, _ []byte, node string) []byte {
		cert, key := foreign(t, node)
		return append(cert, key...)
	},
}

// foreign makes a certificate for a node that this cluster has not issued.
func foreign(t *testing.T, node string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{
		CommonName:   "system:node:" + node,
		Organization: []string{"system:nodes"},
	},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(24 * time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, KeyUsage: x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{
		Type:  "CERTIFICATE",
		Bytes: der,
	}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
}

// allowJoining makes a bootstrap token and gives its users, and nodes, the rights
// that an installer gives them.
func allowJoining(ctx context.Context, t *testing.T, c *rig.Cluster) string {
	t.Helper()
	const id, secret = "07401b", "f395accd246ae52d"
	_, err := c.Client.CoreV1().Secrets("kube-system").Create(ctx,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + id},
			Type: corev1.SecretTypeBootstrapToken,
			StringData: map[string]string{
				"token-id":                       id,
				"token-secret":                   secret,
				"usage-bootstrap-authentication": "true",
				"usage-bootstrap-signing":        "true",
			}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for role, group := range map[string]string{
		"system:node-bootstrapper": "system:bootstrappers",
		"system:certificates.k8s.io:certificatesigningrequests:nodeclient":     "system:bootstrappers",
		"system:certificates.k8s.io:certificatesigningrequests:selfnodeclient": "system:nodes",
	} {
		_, err := c.Client.RbacV1().ClusterRoleBindings().Create(ctx,
			&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: strings.ReplaceAll(role, ":", ".")},
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
				Subjects: []rbacv1.Subject{
					{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group},
				}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	return id + "." + secret
}

// approveServing approves serving certificates as an administrator does: no controller approves them.
func approveServing(ctx context.Context, t *testing.T, c *rig.Cluster) {
	api := c.Client.CertificatesV1().CertificateSigningRequests()
	w, err := api.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Error(err)
		return
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		r, ok := e.Object.(*certificatesv1.CertificateSigningRequest)
		if !ok || r.Spec.SignerName != certificatesv1.KubeletServingSignerName || len(r.Status.Conditions) > 0 {
			continue
		}
		r = r.DeepCopy()
		r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
			{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"},
		}
		if _, err := api.UpdateApproval(ctx, r.Name, r, metav1.UpdateOptions{}); err != nil && ctx.Err() == nil {
			t.Logf("approve %s: %v", r.Name, err)
		}
	}
}

// signingRequests lists the requests to one signer, oldest first.
func signingRequests(
	ctx context.Context, t *testing.T, c *rig.Cluster, signer string,
) []certificatesv1.CertificateSigningRequest {
	t.Helper()
	list, err := c.Client.CertificatesV1().CertificateSigningRequests().List(ctx,
		metav1.ListOptions{FieldSelector: "spec.signerName=" + signer})
	if err != nil {
		t.Fatal(err)
	}
	out := list.Items
	for i := range out { // few, so the simplest order will do
		for j := i; j > 0 && out[j].CreationTimestamp.Before(&out[j-1].CreationTimestamp); j-- {
			out[j], out[j-1] = out[j-1], out[j]
		}
	}
	return out
}

// inForce reads the current certificate of a pair from the agent's directory.
func inForce(t *testing.T, pki, pair string) *x509.Certificate {
	t.Helper()
	file := filepath.Join(pki, pair+"-current.pem")
	c, err := tls.LoadX509KeyPair(file, file)
	if err != nil {
		t.Fatal(err)
	}
	return c.Leaf
}

func handshake(k *rig.Kubelet) (*x509.Certificate, error) {
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}, "tcp", strings.TrimPrefix(k.URL, "https://"),
		&tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0], nil
}

// untilServed waits until the serving certificate is issued and the agent's server uses it:
// handshakes fail until then.
func untilServed(ctx context.Context, t *testing.T, k *rig.Kubelet, c *rig.Cluster) *x509.Certificate {
	t.Helper()
	var cert *x509.Certificate
	eventually(t, "the server to have a certificate", func() bool {
		var err error
		cert, err = handshake(k)
		return err == nil
	})
	if cert.Issuer.CommonName != "keelson rig" {
		t.Errorf("issued by %s", cert.Issuer)
	}
	return cert
}

// eventually checks a condition once a second.
func eventually(t *testing.T, what string, there func() bool) {
	t.Helper()
	await.Within(t, patience, time.Second, what, func() (string, bool) { return "", there() })
}
