package csisanity

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
)

// TestDriver: the CSI driver that other tests use conforms to the interface, by the suite of the CSI project.
func TestDriver(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir, err := os.MkdirTemp("", "sanity")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	program := filepath.Join(dir, "csidriver")
	build := exec.Command("go", "build", "-o", program, "./test/kit/csidriver/cmd/csidriver")
	build.Dir = filepath.Join("..", "..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build driver: %v\n%s", err, out)
	}
	driver := exec.Command(program, "-dir", filepath.Join(dir, "d"))
	driver.Stderr = os.Stderr
	if err := driver.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = driver.Process.Signal(os.Interrupt)
		_ = driver.Wait()
	})
	socket := filepath.Join(dir, "d", "csi.sock")
	for limit := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(socket); err == nil {
			break
		}
		if time.Now().After(limit) {
			t.Fatal("the driver does not serve")
		}
	}
	cfg := sanity.NewTestConfig()
	cfg.Address = "unix://" + socket
	cfg.TargetPath, cfg.StagingPath = filepath.Join(dir, "target"), filepath.Join(dir, "staging")
	cfg.IdempotentCount = 2
	sanity.Test(t, cfg)
}
