package rotate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
	"keelson/test/kit/scrape"
)

func TestUsageOfAllInstances(t *testing.T) {
	parity.Proves(t, "RT-51")
	root := t.TempDir()
	log := func(name string) Log {
		return Log{
			Container: "id-" + name,
			Path:      filepath.Join(root, "ns_web_u1", name, "1.log"),
			Pod:       pod.Ref{UID: "u1", Namespace: "ns", Name: "web"},
			Name:      name,
		}
	}
	dir := filepath.Dir(log("main").Path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"0.log", "1.log", "1.log.20260102-030405.gz"} {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(strings.Repeat("x", 3*4096)); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil { // blocks are allocated late
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	big := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(big, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(big, filepath.Join(dir, "2.log")); err != nil {
		t.Fatal(err)
	}
	got := scrape.Of(t, NewUsage(root, func() []Log { return []Log{log("main"), log("main"), log("gone")} }))
	name := "kubelet_container_log_filesystem_used_bytes{container=main,namespace=ns,pod=web,uid=u1}"
	if n := got[name]; n < 9*4096 || n > 64<<10 || len(got) != 1 {
		t.Errorf("metrics are %v, want the %d bytes of three files and nothing else", got, 9*4096)
	}
}
