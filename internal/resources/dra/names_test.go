package dra

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"keelson/test/kit/dradriver"
	"keelson/test/kit/need"
	"keelson/test/kit/parity"
)

// TestHealthDeviceNames checks that a device without a CDI ID is identified by its driver, pool and name, and that
// devices with the same first CDI ID are listed once.
func TestHealthDeviceNames(t *testing.T) {
	parity.ProvesPart(t, 2, "RES-63")
	play(t, func(s *stage) {
		p := using("p", "c")
		content, err := encodeClaims([]claimRecord{{
			ClaimUID:  "uid-of-c",
			ClaimName: "c",
			Namespace: "ns",
			PodUIDs:   map[string]struct{}{"p": {}},
			DriverState: map[string]driverRecord{"d.example.com": {Devices: []deviceRecord{
				{PoolName: "pool", DeviceName: "bare-0", RequestNames: []string{"r"}},
				{PoolName: "pool", DeviceName: "bare-1", RequestNames: []string{"r"}},
				{
					PoolName:     "pool",
					DeviceName:   "part-0",
					RequestNames: []string{"r"},
					CDIDeviceIDs: []string{"x/y=whole", "x/y=part-0"},
				},
				{
					PoolName:     "pool",
					DeviceName:   "part-1",
					RequestNames: []string{"r"},
					CDIDeviceIDs: []string{"x/y=whole", "x/y=part-1"},
				},
			}}},
		}})
		if err := errors.Join(err, os.WriteFile(s.file(), content, 0o600), s.Load()); err != nil {
			t.Fatal(err)
		}
		got := s.Health(p)["main"]
		if len(got) != 1 || got[0].Name != "claim:c" {
			t.Fatalf("%+v", got)
		}
		var ids []v1.ResourceID
		for _, r := range got[0].Resources {
			ids = append(ids, r.ResourceID)
			if r.Health != v1.ResourceHealthStatusUnknown {
				t.Errorf("%+v", r)
			}
		}
		if len(ids) != 3 || ids[0] != "d.example.com/pool/bare-0" || ids[1] != "d.example.com/pool/bare-1" ||
			ids[2] != "x/y=whole" {
			t.Errorf("devices %q", ids)
		}
	})
}

// TestClaimCheckpointIsSynced checks that the checkpoint is on the disk, not only in the page cache, before a driver is
// called.
func TestClaimCheckpointIsSynced(t *testing.T) {
	unsynced := filepath.Join(t.TempDir(), "unsynced")
	if err := os.WriteFile(unsynced, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := notWritten(unsynced); err != nil || n == 0 {
		need.Skip(t, "the file system does not report dirty pages", n, err)
	}
	play(t, func(s *stage) {
		p := using("p", "c")
		s.claim("c", []string{driverName}, p)
		d, hang := s.driver(driverName), make(chan struct{})
		defer close(hang)
		d.Fault("NodePrepareResources", dradriver.Fault{Hang: hang})
		s.wants(p)
		if n, err := notWritten(s.file()); err != nil || n > 0 {
			t.Errorf("%d pages of %s have yet to be written, %v", n, s.file(), err)
		}
	})
}

// notWritten returns the number of pages of a file that have yet to be written to the disk.
func notWritten(path string) (uint64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	var st unix.Cachestat_t
	err = unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{}, &st, 0)
	return st.Dirty + st.Writeback, errors.Join(err, f.Close())
}
