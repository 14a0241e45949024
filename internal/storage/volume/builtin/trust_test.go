package builtin

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	certv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"keelson/internal/storage/volume"
	"keelson/test/kit/await"
	"keelson/test/kit/parity"
)

func pemOf(kind, content string) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: []byte(content)}))
}

func bundle(name, signer, label string, anchors ...string) *certv1beta1.ClusterTrustBundle {
	b := &certv1beta1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"l": label}},
		Spec:       certv1beta1.ClusterTrustBundleSpec{SignerName: signer},
	}
	for _, a := range anchors {
		b.Spec.TrustBundle += "a comment\n" + pemOf("CERTIFICATE", a)
	}
	return b
}

// anchors returns the trust anchors of a file, sorted.
func anchors(t *testing.T, file []byte) string {
	t.Helper()
	var out []string
	for len(file) > 0 {
		block, rest := pem.Decode(file)
		if block == nil || !bytes.HasPrefix(file, []byte("-----BEGIN CERTIFICATE-----\n")) {
			t.Fatalf("the file is not made of certificates alone: %q", file)
		}
		out, file = append(out, string(block.Bytes)), rest
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func TestSelectBundles(t *testing.T) {
	parity.ProvesPart(t, 4, "VOL-48")
	all := []*certv1beta1.ClusterTrustBundle{
		bundle("plain", "", "", "a", "b"),
		bundle("s:one", "example.com/s", "x", "a", "c"), bundle("s:two", "example.com/s", "y", "c", "d"),
		bundle("o:one", "example.com/o", "x", "e"),
	}
	labels := func(l string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"l": l}}
	}
	signer := ptr.To("example.com/s")
	for _, tc := range []struct {
		name string
		s    v1.ClusterTrustBundleProjection
		want string
		err  string
	}{
		{"by name", v1.ClusterTrustBundleProjection{Name: ptr.To("plain")}, "a b", ""},
		{
			"a name that is missing",
			v1.ClusterTrustBundleProjection{Name: ptr.To("none")},
			"",
			`clustertrustbundle "none" not found`,
		},
		{"and may be", v1.ClusterTrustBundleProjection{Name: ptr.To("none"), Optional: ptr.To(true)}, "", ""},
		{
			"by signer, of every label, each anchor once",
			v1.ClusterTrustBundleProjection{SignerName: signer, LabelSelector: &metav1.LabelSelector{}},
			"a c d",
			"",
		},
		{"by signer and label", v1.ClusterTrustBundleProjection{SignerName: signer, LabelSelector: labels("y")}, "c d", ""},
		{
			"a signer without a selector matches nothing",
			v1.ClusterTrustBundleProjection{SignerName: signer},
			"",
			"combination of signerName and labelSelector matched zero ClusterTrustBundles",
		},
		{
			"no match",
			v1.ClusterTrustBundleProjection{SignerName: signer, LabelSelector: labels("z")},
			"",
			"combination of signerName and labelSelector matched zero ClusterTrustBundles",
		},
		{
			"no match, which may be",
			v1.ClusterTrustBundleProjection{SignerName: signer, LabelSelector: labels("z"), Optional: ptr.To(true)},
			"",
			"",
		},
		{"neither", v1.ClusterTrustBundleProjection{}, "", "requires either name or signerName"},
		{
			"a selector that makes no sense",
			v1.ClusterTrustBundleProjection{
				SignerName: signer,
				LabelSelector: &metav1.LabelSelector{
					MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "l", Operator: "Like"}},
				},
			},
			"",
			"parse label selector",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			chosen, err := selectBundles(all, &tc.s)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("%v, want %s", err, tc.err)
				}
				return
			}
			file, ferr := anchorsOf(chosen)
			if err := errors.Join(err, ferr); err != nil {
				t.Fatal(err)
			}
			if got := anchors(t, file); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
			slices.Reverse(chosen)
			if again, err := anchorsOf(chosen); err != nil || !bytes.Equal(again, file) {
				t.Errorf("the file changes with the order of the bundles: %v", err)
			}
		})
	}
	if _, err := anchorsOf([]*certv1beta1.ClusterTrustBundle{
		{Spec: certv1beta1.ClusterTrustBundleSpec{TrustBundle: pemOf("PRIVATE KEY", "k")}},
	}); err == nil {
		t.Error("a bundle with a key is shown")
	}
}

// The order is neither that of the bundle nor that of the names, so that nothing can depend on it.
func TestAnchorsAreShuffled(t *testing.T) {
	parity.ProvesPart(t, 4, "VOL-48")
	defer func(s string) { shuffle = s }(shuffle)
	var letters []string
	for c := 'a'; c <= 'z'; c++ {
		letters = append(letters, string(c))
	}
	seen := map[string]bool{}
	for _, s := range []string{"one", "two", "three"} {
		shuffle = s
		file, err := anchorsOf([]*certv1beta1.ClusterTrustBundle{bundle("b", "", "", letters...)})
		if err != nil {
			t.Fatal(err)
		}
		seen[string(file)] = true
	}
	if len(seen) != 3 {
		t.Errorf("%d orders in 3 lives of an agent", len(seen))
	}
}

// fakeTrust has bundles and certificates, or has them pending.
type fakeTrust struct {
	mu      sync.Mutex
	bundles []*certv1beta1.ClusterTrustBundle
	key     string // empty: the certificate is pending
	dropped []types.UID
}

func (f *fakeTrust) All(context.Context) ([]*certv1beta1.ClusterTrustBundle, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bundles, nil
}

type notYet struct{}

func (notYet) Error() string   { return "not yet" }
func (notYet) Waiting() string { return "the signer" }

func (f *fakeTrust) Certificate(
	_ context.Context, p *v1.Pod, name string, source int, _ *v1.PodCertificateProjection,
) (key, chain []byte, renewAt time.Time, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.key == "" {
		return nil, nil, time.Time{}, notYet{}
	}
	if name != "v" || source != 1 {
		return nil, nil, time.Time{}, errors.New("another source is requested")
	}
	return []byte("key " + f.key + "\n"), []byte("chain " + f.key + "\n"), time.Now().Add(time.Hour), nil
}

func (f *fakeTrust) Forget(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropped = append(f.dropped, uid)
}

func (f *fakeTrust) set(key string, bundles ...*certv1beta1.ClusterTrustBundle) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.key, f.bundles = key, bundles
}

func TestProjectedTrustAndCertificates(t *testing.T) {
	parity.ProvesPart(t, 3, "VOL-45")
	parity.ProvesPart(t, 6, "VOL-49")
	trust := &fakeTrust{}
	n := newTestNode(t)
	n.stop()
	n.trust = trust
	n.start()
	p := podWith("p1", v1.Volume{
		Name: "v",
		VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
			DefaultMode: ptr.To[int32](0o644),
			Sources: []v1.VolumeProjection{
				{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Name: ptr.To("b"), Path: "ca.pem"}},
				{
					PodCertificate: &v1.PodCertificateProjection{
						CredentialBundlePath: "both.pem",
						KeyPath:              "tls/key.pem",
						CertificateChainPath: "tls/chain.pem",
					},
				},
			},
		}},
	})
	p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: ptr.To[int64](1234)}
	dir := volume.PlaceOf(n.root, p.UID, "kubernetes.io/projected", "v", false).Path
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err.Error()
		}
		return string(b)
	}
	n.Want(p)
	n.until("the missing bundle is reported", func() bool {
		s := n.State(p.UID)
		return s.Err != nil && strings.Contains(s.Err.Error(), `clustertrustbundle "b" not found`)
	})
	trust.set("", bundle("b", "", "", "a"))
	n.SharedChanged(anyBundle)
	// A pending certificate is not a failure.
	n.until("the bundle is there, the certificate is not",
		func() bool { s := n.State(p.UID); return s.Err == nil && !s.Ready })
	trust.set("1", bundle("b", "", "", "a"))
	n.ObjectChanged([]types.UID{p.UID}, volume.Certificate, "v")
	n.ready(p)
	for name, want := range map[string]string{
		"ca.pem":        pemOf("CERTIFICATE", "a"),
		"both.pem":      "key 1\nchain 1\n",
		"tls/key.pem":   "key 1\n",
		"tls/chain.pem": "chain 1\n",
	} {
		if got := read(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		st, err := os.Stat(filepath.Join(dir, name))
		if err != nil || st.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}
	// All files change atomically, those of one key together.
	gen, err := os.Readlink(filepath.Join(dir, "..data"))
	if err != nil {
		t.Fatal(err)
	}
	trust.set("2", bundle("b", "", "", "a", "z"))
	n.ObjectChanged([]types.UID{p.UID}, volume.Certificate, "v")
	await.Until(t, "renewed files", func() (string, bool) {
		both := read("both.pem")
		return fmt.Sprintf("%q", both), both == "key 2\nchain 2\n"
	})
	if now, err := os.Readlink(filepath.Join(dir, "..data")); err != nil || now == gen ||
		read("tls/key.pem") != "key 2\n" || anchors(t, []byte(read("ca.pem"))) != "a z" {
		t.Errorf("after a renewal %s, %v: %q", now, err, read("ca.pem"))
	}
	n.release(p)
	if !slices.Contains(trust.dropped, p.UID) {
		t.Error("the key of a pod that is gone is kept")
	}
}
