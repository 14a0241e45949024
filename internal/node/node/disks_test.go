package node

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"keelson/test/kit/parity"
)

// fullDisk is a file system of its own that is nearly full.
func fullDisk(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(dir, "layer"), make([]byte, 1000<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestContainersMayLieOnAnotherDiskThanImages(t *testing.T) {
	parity.Proves(t, "RT-41")
	full, roomy := fullDisk(t), t.TempDir()
	for name, tc := range map[string]struct {
		images, containers, signal string
		separate, pressure         bool
	}{
		"the disk of containers is full":                  {roomy, full, "containerfs.available", true, true},
		"what images have does not matter to containers":  {full, roomy, "containerfs.available", true, false},
		"nor the other way round":                         {roomy, full, "imagefs.available", true, false},
		"the disk of images is full":                      {full, roomy, "imagefs.available", true, true},
		"with the gate off both are where the images are": {roomy, full, "containerfs.available", false, false},
		"and are full with it":                            {full, roomy, "containerfs.available", false, true},
		"a runtime that does not tell has both in one":    {full, "", "containerfs.available", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := run(t, newServer(), func(c *Config, r *rig) {
					r.runtime.images, r.runtime.containers = tc.images, tc.containers
					c.SeparateContainerDisk = tc.separate
					var err error
					if c.Hard, err = ParseThresholds(map[string]string{tc.signal: "100Ki"}); err != nil {
						t.Fatal(err)
					}
				})
				defer r.stop()
				<-r.Registered()
				pass(30 * time.Second)
				got := condition(r.api.snapshot().Status, v1.NodeDiskPressure).Status == v1.ConditionTrue
				if got != tc.pressure {
					t.Errorf("pressure on the disk: %v, want %v", got, tc.pressure)
				}
			})
		})
	}
}
