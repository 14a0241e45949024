package app

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	v1beta1 "k8s.io/kubelet/config/v1beta1"

	"keelson/internal/node/server/cert"
	"keelson/internal/resources/userns"
	"keelson/internal/runtime/image"
	"keelson/internal/runtime/image/record"
	"keelson/test/kit/parity"
	"keelson/test/kit/renames"
)

// TestWhatMustOutliveACrashIsRenamedIntoPlace writes everything that a later
// agent reads, twice, and looks at how the files came to be.
func TestWhatMustOutliveACrashIsRenamedIntoPlace(t *testing.T) {
	parity.ProvesPart(t, 3, "RT-57")
	root := t.TempDir()
	log := slog.New(slog.DiscardHandler)
	for name, tc := range map[string]struct {
		dirs  []string
		files int // that are there in the end
		write func(t *testing.T)
	}{
		"image records": {[]string{"image_manager/pulling", "image_manager/pulled"}, 1, func(t *testing.T) {
			s, err := record.New(record.Config{Root: root, Policy: record.Policy{Verify: v1beta1.AlwaysVerify}, Log: log, Now: time.Now})
			if err != nil {
				t.Fatal(err)
			}
			for _, password := range []string{"one", "two"} {
				if err := s.Pulling("web:1"); err != nil {
					t.Fatal(err)
				}
				s.Pulled("web:1", "sha256:web", image.Credential{Auth: &runtimeapi.AuthConfig{Username: "u", Password: password},
					Secret: &v1beta1.ImagePullSecret{UID: password, Namespace: "ns", Name: password}})
			}
		}},
		"users of pods": {[]string{"pods/u1"}, 1, func(t *testing.T) {
			a, err := userns.New(userns.Config{PodsDir: filepath.Join(root, "pods"), IDs: userns.Range{First: 65536 * 10, Count: 65536 * 10}, PerPod: 65536, Log: log})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := a.Of("u1"); err != nil {
				t.Fatal(err)
			}
		}},
		"serving certificate": {[]string{"pki"}, 2, func(t *testing.T) {
			for _, now := range []time.Time{time.Now().Add(-20 * 365 * 24 * time.Hour), time.Now()} { // the second replaces the expired first
				if _, _, err := cert.SelfSigned(filepath.Join(root, "pki"), "node", now, func(error) {}, log); err != nil {
					t.Fatal(err)
				}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range tc.dirs {
				tc.dirs[i] = filepath.Join(root, tc.dirs[i])
			}
			w := renames.Watch(t, tc.dirs...)
			tc.write(t)
			there := w.Check(t)
			if len(there) != tc.files {
				t.Errorf("%q are there, want %d files", there, tc.files)
			}
		})
	}
}
