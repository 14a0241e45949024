package csi

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	csiv1 "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"keelson/test/kit/csidriver"
)

// safeBuffer is a log buffer for concurrent use.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// CVE-2023-2878, CVE-2024-3744: service account tokens for drivers were found in logs. Secrets and
// tokens for a driver must not appear in the log at any level, in events, in the pod's state or on
// the disk, whether calls succeed or fail.
func TestSecretsDoNotLeak(t *testing.T) {
	n := newTestNode(t, nil)
	n.stop()
	log := &safeBuffer{}
	must(t, n.open(slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug - 4}))))
	for _, inSecrets := range []bool{false, true} {
		n.driver.Forget()
		n.driverObject(func(s *storagev1.CSIDriverSpec) {
			s.TokenRequests = []storagev1.TokenRequest{{Audience: "vault"}}
			s.ServiceAccountTokenInSecrets = &inSecrets
			s.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent,
				storagev1.VolumeLifecycleEphemeral}
		})
		n.volumeOf("data", func(pv *v1.PersistentVolume) {
			c := pv.Spec.CSI
			c.NodeStageSecretRef = &v1.SecretReference{Namespace: "sec", Name: "stage"}
			c.NodePublishSecretRef = &v1.SecretReference{Namespace: "sec", Name: "publish"}
		})
		n.api.change(func() {
			for _, name := range []string{"sec/stage", "sec/publish", "ns/inline"} {
				n.api.secrets[name] = &v1.Secret{Data: map[string][]byte{"password": []byte("sesame-" + name)}}
			}
		})
		p := podWith("a", "data")
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{
			Name: "inline",
			VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{
				Driver:               driverName,
				FSType:               ptr.To(""),
				NodePublishSecretRef: &v1.LocalObjectReference{Name: "inline"},
			}},
		})
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, v1.VolumeMount{
			Name:      "inline",
			MountPath: "/i",
		})
		for _, method := range []string{"NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume",
			"NodeUnstageVolume"} {
			n.driver.Next(method, csidriver.Fault{
				Err: status.Error(codes.Internal, "no"),
			}, csidriver.Fault{Err: status.Error(codes.Aborted, "no"), After: true})
		}
		seen := map[string]string{}
		look := func(where, text string) {
			if text != "" {
				seen[where] += text
			}
		}
		n.Want(p)
		n.until("readiness", func() bool {
			if err := n.State(p.UID).Err; err != nil {
				look("the pod's state", err.Error())
			}
			return n.State(p.UID).Ready
		})
		onDisk(t, n, look)
		got, err := json.Marshal(n.driver.Last("NodePublishVolume").(*csiv1.NodePublishVolumeRequest))
		must(t, err)
		if !strings.Contains(string(got), "token-a-vault") || !strings.Contains(string(got), "sesame-") {
			t.Errorf("the fake driver recorded nothing: %s", got)
		}
		n.release(p)
		n.idle()
		look("the log", log.String())
		look("events", strings.Join(n.events.Lines(), "\n"))
		if seen["the log"] == "" || seen["events"] == "" || seen["the disk"] == "" {
			t.Fatalf("nothing was looked at: %v", seen)
		}
		for where, text := range seen {
			for _, secret := range []string{"sesame", "token-a"} {
				if at := strings.Index(text, secret); at >= 0 {
					t.Errorf("a secret stands in %s: …%s…", where, text[max(0, at-120):min(len(text), at+60)])
				}
			}
		}
	}
}

// onDisk reads all files of the agent except for those in volumes.
func onDisk(t *testing.T, n *testNode, look func(where, text string)) {
	t.Helper()
	err := filepath.WalkDir(n.root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == globalMount || e.Name() == publishedDir):
			return fs.SkipDir
		case e.Type().IsRegular():
			text, err := os.ReadFile(path)
			look("the disk", string(text))
			return err
		}
		return nil
	})
	must(t, err)
}
