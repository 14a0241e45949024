package record

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	v1beta1 "k8s.io/kubelet/config/v1beta1"

	"keelson/internal/runtime/image"
	"keelson/test/kit/parity"
	"keelson/test/kit/renames"
)

// bench is a node whose agent can be restarted.
type bench struct {
	*Store
	root   string
	policy Policy
	images []*runtimeapi.Image
	now    time.Time
	reg    *prometheus.Registry
}

func newBench(t *testing.T, verify v1beta1.ImagePullCredentialsVerificationPolicy) *bench {
	t.Helper()
	b := &bench{root: t.TempDir(), policy: Policy{Verify: verify}, now: time.Unix(1000000, 0)}
	b.restart(t)
	return b
}

func (b *bench) restart(t *testing.T) {
	t.Helper()
	b.reg = prometheus.NewRegistry()
	var err error
	b.Store, err = New(Config{
		Root:     b.root,
		Policy:   b.policy,
		Registry: b.reg,
		Log:      slog.New(slog.DiscardHandler),
		Now:      func() time.Time { return b.now },
		Images:   func(context.Context) ([]*runtimeapi.Image, error) { return b.images, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
}

// pull makes a successful pull.
func (b *bench) pull(t *testing.T, name, ref string, with image.Credential) {
	t.Helper()
	if err := b.Pulling(name); err != nil {
		t.Fatal(err)
	}
	b.Pulled(name, ref, with)
}

func (b *bench) files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(b.root, Dir, dir))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func holding(creds ...image.Credential) func() ([]image.Credential, error) {
	return func() ([]image.Credential, error) { return creds, nil }
}

func secret(uid, password string) image.Credential {
	auth := &runtimeapi.AuthConfig{Username: "u", Password: password}
	return image.Credential{
		Auth:   auth,
		Secret: &v1beta1.ImagePullSecret{UID: uid, Namespace: "ns", Name: "s-" + uid, CredentialHash: image.Hash(auth)},
	}
}

func account(uid string) image.Credential {
	return image.Credential{
		Auth:    &runtimeapi.AuthConfig{},
		Account: &v1beta1.ImagePullServiceAccount{UID: uid, Namespace: "ns", Name: "sa"},
	}
}

var none = image.Credential{}

func TestPolicies(t *testing.T) {
	parity.ProvesPart(t, 3, "LIFE-104")
	for _, tc := range []struct {
		policy     Policy
		name       string
		ours, want bool
	}{
		{Policy{Verify: v1beta1.NeverVerify}, "a:1", true, false},
		{Policy{Verify: v1beta1.NeverVerifyPreloadedImages}, "a:1", false, false},
		{Policy{Verify: v1beta1.NeverVerifyPreloadedImages}, "a:1", true, true},
		{Policy{Verify: v1beta1.AlwaysVerify}, "a:1", false, true},
		{Policy{v1beta1.NeverVerifyAllowlistedImages, []string{"r.io/a"}}, "r.io/a:1", false, false},
		{Policy{v1beta1.NeverVerifyAllowlistedImages, []string{"r.io/a"}}, "r.io/a:1", true, true},
		{Policy{v1beta1.NeverVerifyAllowlistedImages, []string{"r.io/a"}}, "r.io/a/b:1", false, true},
		{
			Policy{v1beta1.NeverVerifyAllowlistedImages, []string{"r.io/a/*"}},
			"r.io/a/b@sha256:" + strings.Repeat("0", 64),
			false,
			false,
		},
		{Policy{v1beta1.NeverVerifyAllowlistedImages, []string{"r.io/a/*"}}, "r.io/ab", false, true},
		{Policy{v1beta1.NeverVerifyAllowlistedImages, []string{"docker.io/library/x"}}, "x:1", false, false},
	} {
		repo, full, err := repository(tc.name)
		if err != nil {
			t.Fatal(err)
		}
		if got := tc.policy.needed([]string{repo, full}, tc.ours); got != tc.want {
			t.Errorf("%+v: %s (ours: %v) needs credentials = %v", tc.policy, tc.name, tc.ours, got)
		}
	}
}

func TestMustPull(t *testing.T) {
	parity.ProvesPart(t, 3, "LIFE-104")
	const name, ref = "r.io:5000/a:1", "sha256:1"
	for _, tc := range []struct {
		name   string
		pulled []image.Credential
		as     string // requested by this name
		held   []image.Credential
		want   bool
	}{
		{"an image that was there before", nil, name, nil, false},
		{"pulled without credentials", []image.Credential{none}, name, nil, false},
		{"pulled with a secret, requested without", []image.Credential{secret("1", "p")}, name, nil, true},
		{
			"pulled with the same secret",
			[]image.Credential{secret("1", "p")},
			name,
			[]image.Credential{secret("9", "x"), secret("1", "p")},
			false,
		},
		{
			"the secret has another content now",
			[]image.Credential{secret("1", "p")},
			name,
			[]image.Credential{secret("1", "q")},
			false,
		},
		{
			"another secret with the same content",
			[]image.Credential{secret("1", "p")},
			name,
			[]image.Credential{secret("2", "p")},
			false,
		},
		{"another secret", []image.Credential{secret("1", "p")}, name, []image.Credential{secret("2", "q")}, true},
		{
			"pulled for the same service account",
			[]image.Credential{account("1")},
			name,
			[]image.Credential{account("1")},
			false,
		},
		{
			"pulled for another service account",
			[]image.Credential{account("1")},
			name,
			[]image.Credential{account("2")},
			true,
		},
		{"pulled later without credentials", []image.Credential{secret("1", "p"), none}, name, nil, false},
		{
			"pulled later with other credentials",
			[]image.Credential{secret("1", "p"), secret("2", "q")},
			name,
			[]image.Credential{secret("1", "p")},
			false,
		},
		{"requested with another tag", []image.Credential{none}, "r.io:5000/a:2", nil, false},
		{"requested by another name", []image.Credential{none}, "r.io:5000/b:1", nil, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, v1beta1.NeverVerifyPreloadedImages)
			for _, c := range tc.pulled {
				b.pull(t, name, ref, c)
			}
			for _, when := range []string{"at once", "after a restart"} {
				if got := b.MustPull(tc.as, ref, holding(tc.held...)); got != tc.want {
					t.Errorf("%s: MustPull = %v", when, got)
				}
				b.restart(t)
			}
		})
	}
	t.Run("credentials are only read if needed", func(t *testing.T) {
		b := newBench(t, v1beta1.NeverVerifyPreloadedImages)
		b.pull(t, name, ref, none)
		if b.MustPull(name, ref,
			func() ([]image.Credential, error) { t.Error("credentials were read"); return nil, nil }) {
			t.Error("MustPull")
		}
	})
	t.Run("credentials that cannot be read", func(t *testing.T) {
		b := newBench(t, v1beta1.NeverVerifyPreloadedImages)
		b.pull(t, name, ref, secret("1", "p"))
		if !b.MustPull(name, ref, func() ([]image.Credential, error) { return nil, errors.New("broken secret") }) {
			t.Error("the image is used although credentials cannot be read")
		}
	})
	t.Run("a match is good by itself from then on", func(t *testing.T) {
		b := newBench(t, v1beta1.NeverVerifyPreloadedImages)
		b.pull(t, name, ref, secret("1", "p"))
		b.MustPull(name, ref, holding(secret("2", "p")))
		if b.MustPull(name, ref, holding(secret("2", "changed"))) {
			t.Error("a secret whose content opened the image before is refused after it changed")
		}
	})
}

func TestFiles(t *testing.T) {
	parity.Proves(t, "RT-40")
	b := newBench(t, v1beta1.NeverVerifyPreloadedImages)
	for _, dir := range []string{"", "pulling", "pulled"} {
		st, err := os.Stat(filepath.Join(b.root, "image_manager", dir))
		if err != nil || st.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", dir, st.Mode(), err)
		}
	}
	const name, ref = "r.io/a:1", "sha256:1"
	if err := b.Pulling(name); err != nil {
		t.Fatal(err)
	}
	file := func(of string) string { return fmt.Sprintf("sha256-%x", sha256.Sum256([]byte(of))) }
	if got := b.files(t, "pulling"); !slices.Equal(got, []string{file("r.io/a:1")}) {
		t.Errorf("while it is pulled: %v", got)
	}
	raw, err := os.ReadFile(filepath.Join(b.root, "image_manager/pulling", file("r.io/a:1")))
	if want := `{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"r.io/a:1"}`; err != nil ||
		string(raw) != want {
		t.Errorf("intent = %s, %v; want %s", raw, err, want)
	}
	b.Pulled(name, ref, secret("1", "p"))
	if got := b.files(t, pullingDir); len(got) > 0 {
		t.Errorf("intents after the pull: %v", got)
	}
	var r v1beta1.ImagePulledRecord
	pulled := func(ref string) {
		t.Helper()
		r = v1beta1.ImagePulledRecord{}
		raw, err = os.ReadFile(filepath.Join(b.root, "image_manager/pulled", file(ref)))
		if err := errors.Join(err, json.Unmarshal(raw, &r)); err != nil {
			t.Fatal(err)
		}
	}
	pulled("sha256:1")
	if s := r.CredentialMapping["r.io/a"].KubernetesSecrets; r.Kind != "ImagePulledRecord" || r.ImageRef != ref ||
		!r.LastUpdatedTime.Time.Equal(b.now) ||
		len(s) != 1 || s[0].UID != "1" || s[0].Namespace != "ns" || s[0].Name != "s-1" ||
		len(s[0].CredentialHash) != 64 ||
		strings.Contains(string(raw), `"p"`) {
		t.Errorf("record = %s", raw)
	}
	b.pull(t, "r.io/c:1", "sha256:c", account("7"))
	pulled("sha256:c")
	mapped := r.CredentialMapping["r.io/c"]
	if s := mapped.KubernetesServiceAccounts; len(s) != 1 || s[0].UID != "7" || mapped.NodePodsAccessible {
		t.Errorf("record of a pull for a service account = %s", raw)
	}
	b.pull(t, "r.io/d:1", "sha256:d", none)
	pulled("sha256:d")
	if !r.CredentialMapping["r.io/d"].NodePodsAccessible || r.APIVersion != "kubelet.config.k8s.io/v1beta1" {
		t.Errorf("record of a pull without credentials = %s", raw)
	}
	if err := b.Pulling("r.io/b:1"); err != nil {
		t.Fatal(err)
	}
	if err := b.Pulling("r.io/b:1"); err != nil {
		t.Fatal(err)
	}
	b.Failed("r.io/b:1")
	if got := b.files(t, pullingDir); len(got) != 1 {
		t.Errorf("one of two pulls has failed, %d intents", len(got))
	}
	b.Failed("r.io/b:1")
	if got := b.files(t, pullingDir); len(got) != 0 {
		t.Errorf("both pulls have failed, %d intents", len(got))
	}
}

func TestIntentsOfEarlierAgent(t *testing.T) {
	b := newBench(t, v1beta1.NeverVerifyPreloadedImages)
	for _, name := range []string{"a:1", "never-arrived:1"} {
		if err := b.Pulling(name); err != nil {
			t.Fatal(err)
		}
	}
	b.restart(t)
	if !b.MustPull("a:1", "sha256:a", holding()) {
		t.Error("an image that was being pulled is taken for one that was there before")
	}
	b.images = []*runtimeapi.Image{{Id: "sha256:a", RepoTags: []string{"docker.io/library/a:1"}}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	b.restart(t)
	if got := b.files(t, pullingDir); !slices.Equal(got, []string{fileName("never-arrived:1")}) {
		t.Errorf("intents: %v, want that of the image which may still come", got)
	}
	if !b.MustPull("a@sha256:"+strings.Repeat("0", 64), "sha256:a", holding()) {
		t.Error("the image is used under another name without a pull")
	}
}

func TestRecordsOfRemovedImagesAreDeleted(t *testing.T) {
	parity.Proves(t, "RT-39")
	b := newBench(t, v1beta1.NeverVerifyPreloadedImages)
	b.pull(t, "a:1", "sha256:a", none)
	b.pull(t, "b:1", "sha256:b", none)
	b.pull(t, "c:1", "r.io/c@sha256:c", none)
	looked := b.now.Add(time.Minute)
	b.now = looked.Add(time.Second)
	b.pull(t, "new:1", "sha256:new", none)
	b.Review([]*runtimeapi.Image{{Id: "sha256:b"}, {Id: "sha256:x", RepoDigests: []string{"r.io/c@sha256:c"}}}, looked)
	want := []string{fileName("sha256:b"), fileName("r.io/c@sha256:c"), fileName("sha256:new")}
	slices.Sort(want)
	if got := b.files(t, pulledDir); !slices.Equal(got, want) {
		t.Errorf("records: %v, want %v", got, want)
	}
}

func TestInvalidRecordFiles(t *testing.T) {
	b := newBench(t, v1beta1.NeverVerifyPreloadedImages)
	b.pull(t, "a:1", "sha256:a", secret("1", "p"))
	dir := filepath.Join(b.root, Dir, pulledDir)
	for name, content := range map[string]string{
		fileName("x"): "", fileName("y"): `{"kind":"Other"}`, ".tmp-123": "half",
		fileName(
			"old"): `{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1alpha1","imageRef":"old",` +
			`"credentialMapping":{"a":{"nodePodsAccessible":true}}}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.restart(t)
	if !b.MustPull("a:1", "sha256:a", holding()) || b.MustPull("a:1", "old", holding()) {
		t.Error("the good records were not read")
	}
	if slices.Contains(b.files(t, pulledDir), ".tmp-123") {
		t.Error("a file that was left half written is still there")
	}
}

func TestMetrics(t *testing.T) {
	b := newBench(t, v1beta1.NeverVerifyPreloadedImages)
	b.pull(t, "a:1", "sha256:a", secret("1", "p"))
	if err := b.Pulling("b:1"); err != nil {
		t.Fatal(err)
	}
	b.MustPull("a:1", "sha256:a", holding())
	b.MustPull("a:1", "sha256:a", holding(secret("1", "p")))
	b.MustPull("c:1", "sha256:c", holding())
	b.MustPull("UPPER", "sha256:a", holding())
	families, err := b.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	for name, want := range map[string]float64{
		"kubelet_imagemanager_image_mustpull_checks_total mustAuthenticate":        1,
		"kubelet_imagemanager_image_mustpull_checks_total credentialRecordFound":   1,
		"kubelet_imagemanager_image_mustpull_checks_total credentialPolicyAllowed": 1,
		"kubelet_imagemanager_image_mustpull_checks_total error":                   1,
		"kubelet_imagemanager_ondisk_pullintents":                                  1,
		"kubelet_imagemanager_ondisk_pulledrecords":                                1,
	} {
		if got[name] != want {
			t.Errorf("%s = %v, want %v", name, got[name], want)
		}
	}
}

func FuzzFiles(f *testing.F) {
	f.Add(
		[]byte(
			`{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","imageRef":"a",` +
				`"credentialMapping":{"a":{}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		b := newBench(t, v1beta1.AlwaysVerify)
		if err := os.WriteFile(filepath.Join(b.root, Dir, pulledDir, fileName("a")), raw, 0o600); err != nil {
			t.Fatal(err)
		}
		b.restart(t)
		b.MustPull("a:1", "a", holding())
	})
}

// TestRecordsAreRenamedIntoPlace: files are written under a temporary name and renamed, also if they replace earlier
// ones.
func TestRecordsAreRenamedIntoPlace(t *testing.T) {
	parity.ProvesPart(t, 5, "RT-57")
	root := t.TempDir()
	w := renames.Watch(t, filepath.Join(root, "image_manager/pulling"), filepath.Join(root, "image_manager/pulled"))
	s, err := New(Config{
		Root:   root,
		Policy: Policy{Verify: v1beta1.AlwaysVerify},
		Log:    slog.New(slog.DiscardHandler),
		Now:    time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, password := range []string{"one", "two"} {
		if err := s.Pulling("web:1"); err != nil {
			t.Fatal(err)
		}
		s.Pulled("web:1", "sha256:web", image.Credential{
			Auth:   &runtimeapi.AuthConfig{Username: "u", Password: password},
			Secret: &v1beta1.ImagePullSecret{UID: password, Namespace: "ns", Name: password},
		})
	}
	if there := w.Check(t); len(there) != 1 {
		t.Errorf("%q are there, want one file", there)
	}
}
