package san

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"keelson/internal/pods/pod"
	"keelson/internal/storage/mount"
	"keelson/internal/storage/volume"
	"keelson/internal/storage/volume/persistent"
	"keelson/test/kit/crash"
	"keelson/test/kit/volumenode"
)

func TestMain(m *testing.M) {
	works := map[string]func(string) error{}
	for _, of := range networks {
		works[of.name] = func(dir string) error { return victim(dir, of) }
	}
	crash.Main(m, works)
}

// networkUnderTest is one type of network: its plugin, and its two disks. The first has a file
// system, the second is a block device.
type networkUnderTest struct {
	name        string
	plugin      func(Config) *Plugin
	disk, raw   v1.PersistentVolumeSource
	deaths      []string // additional points at which to kill the victim
	programsEnd bool     // before the next life
}

var networks = []networkUnderTest{
	{
		name:   "iSCSI volumes",
		plugin: NewISCSI,
		disk:   target(0, nil),
		raw:    target(1, nil),
		deaths: []string{"at exec of iscsiadm", "at exit of iscsiadm"},
		// iscsiadm only sends requests to the daemon, which completes them.
		programsEnd: true,
	},
	{
		name:   "FC volumes",
		plugin: NewFC,
		disk: v1.PersistentVolumeSource{
			FC: &v1.FCVolumeSource{TargetWWNs: []string{"50060e801049cfd1"}, Lun: ptr.To[int32](0)},
		},
		raw: v1.PersistentVolumeSource{FC: &v1.FCVolumeSource{WWIDs: []string{"3600508b400105e210000900000490000"}}},
	},
}

// fcLinks are the names of the Fibre Channel disks.
var fcLinks = []string{"by-path/pci-0000:41:00.0-fc-0x50060e801049cfd1-lun-0",
	"by-id/scsi-3600508b400105e210000900000490000"}

// nodeAt is a node whose two pods share a disk, and one of them also has a block volume. Below dir
// are the root directory and the machine.
func (of networkUnderTest) nodeAt(dir string) volumenode.Config {
	root, machine := filepath.Join(dir, "root"), filepath.Join(dir, "machine")
	return volumenode.Config{
		Root: root,
		Plugins: func(guard *mount.Guard, events pod.Events) []persistent.Plugin {
			return []persistent.Plugin{of.plugin(Config{
				RootDir: root,
				Guard:   guard,
				Sharing: volume.Ownership{Guard: guard, Events: events},
				Machine: machine,
				Tools:   mount.Tools{Path: machine + ":/usr/sbin:/usr/bin:/sbin:/bin"},
			})}
		},
		Claims: map[string]volumenode.Claim{"disk": {Source: of.disk}, "raw": {Source: of.raw, Block: true}},
		Pods:   map[string][]string{"a": {"disk"}, "b": {"disk", "raw"}},
	}
}

func victim(dir string, of networkUnderTest) error {
	ctx, n := context.Background(), volumenode.Start(of.nodeAt(dir))
	defer n.Stop()
	if err := n.Bring(ctx); err != nil {
		return err
	}
	if err := n.Take(ctx); err != nil {
		return err
	}
	return n.Empty(ctx)
}

// The agent is killed at each change that it and its programs make while it stages and unstages
// disks of a network. The next agent has them with their data, and at the end nothing is left: no
// mount, session, path or record.
func TestKilledAtAnyStep(t *testing.T) {
	for _, of := range networks {
		t.Run(of.name, func(t *testing.T) {
			dir, err := filepath.EvalSymlinks(t.TempDir())
			must(t, err)
			m := newMachineAt(t, filepath.Join(dir, "root"), filepath.Join(dir, "machine"))
			raw := filepath.Join(dir, "raw.img")
			must(t, os.WriteFile(raw, []byte("of raw"), 0o600))
			must(t, os.Truncate(raw, 1<<20))
			device, err := mount.AttachLoop(raw)
			must(t, err)
			t.Cleanup(func() { must(t, mount.DetachLoop(raw)) })
			m.write("luns", "0 "+m.disk+"\n1 "+device+"\n")
			kernel := m.kernel(device)
			written := false
			died := crash.Run(t, crash.Scene{
				Work:  of.name,
				Dir:   dir,
				Kills: 10,
				Alone: of.programsEnd,
				Check: func(i int, _ string) {
					ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
					defer stop()
					must(t, kernel(ctx))
					n := volumenode.Start(of.nodeAt(dir))
					defer n.Stop()
					if i%3 > 0 {
						must(t, n.Bring(ctx))
						for _, p := range n.Pods() {
							mounts, err := n.Mounts(ctx, p, &p.Spec.Containers[0], nil)
							must(t, err)
							file := filepath.Join(mounts[0].HostPath, "f")
							if !written {
								must(t, os.WriteFile(file, []byte("of disk"), 0o600))
								written = true
							}
							if got, err := os.ReadFile(file); err != nil || string(got) != "of disk" {
								t.Errorf("pod %s reads %q, %v", p.Name, got, err)
							}
						}
					}
					must(t, n.Take(ctx))
					must(t, n.Empty(ctx))
					must(t, kernel(ctx))
					for _, link := range fcLinks { // an adapter attaches all disks
						if err := os.Remove(filepath.Join(m.dir, "dev/disk", link)); err == nil && i%3 > 0 {
							t.Errorf("the kernel was not asked to remove %s", link)
						}
					}
					must(t, os.RemoveAll(filepath.Join(m.dir, "sys/block/dm-0")))
					m.clean(of.plugin(m.config()))
					f, err := os.Open(device)
					must(t, err)
					got := make([]byte, len("of raw"))
					if _, err := f.Read(got); err != nil || string(got) != "of raw" {
						t.Errorf("the device reads %q, %v", got, err)
					}
					must(t, f.Close())
				},
			})
			died.Want(t,
				append(of.deaths, "at exec of san.test", "at its mkdir", "at its fsync", "at its rename",
					"at its move_mount",
					"at its symlink", "at its umount", "at its unlink")...)
		})
	}
}

// kernel attaches disks when an adapter is rescanned, with a multipath device for the first, and
// removes them on request. The returned function waits until all requests are processed.
func (m *machine) kernel(device string) func(context.Context) error {
	m.t.Helper()
	disks := map[string]string{fcLinks[0]: m.disk, fcLinks[1]: device}
	dm := filepath.Join(m.dir, "sys/block/dm-0")
	reported := map[string]string{filepath.Join(m.dir, "sys/class/scsi_host/host3/scan"): "- - -"}
	for _, disk := range disks {
		reported[filepath.Join(m.dir, "sys/block", filepath.Base(disk), "device/delete")] = "1"
	}
	must(m.t, os.MkdirAll(filepath.Join(m.dir, "sys/class/fc_host/host3"), 0o755))
	must(m.t, os.Symlink(m.disk, filepath.Join(m.dir, "dev/dm-0")))
	must(m.t, os.WriteFile(filepath.Join(m.dir, "multipath"), []byte("#!/bin/sh\nrm -rf "+dm+"\n"), 0o755))
	w, err := fsnotify.NewWatcher()
	must(m.t, err)
	for file := range reported {
		must(m.t, os.MkdirAll(filepath.Dir(file), 0o755))
		must(m.t, os.WriteFile(file, nil, 0o644))
		must(m.t, w.Add(file))
	}
	do := func(file string) error {
		if strings.HasSuffix(file, "scan") {
			for link, disk := range disks {
				if err := os.Symlink(disk, filepath.Join(m.dir, "dev/disk", link)); err != nil &&
					!errors.Is(err, os.ErrExist) {
					return err
				}
			}
			for {
				err := os.MkdirAll(filepath.Join(dm, "slaves", filepath.Base(m.disk)), 0o755)
				if !errors.Is(err, os.ErrNotExist) { // otherwise it was just flushed
					return err
				}
			}
		}
		name := filepath.Base(filepath.Dir(filepath.Dir(file)))
		for link, disk := range disks {
			if filepath.Base(disk) == name {
				if err := os.Remove(filepath.Join(m.dir, "dev/disk", link)); err != nil &&
					!errors.Is(err, os.ErrNotExist) {
					return err
				}
			}
		}
		return nil
	}
	ended := make(chan struct{})
	m.t.Cleanup(func() { must(m.t, w.Close()); <-ended })
	go func() {
		defer close(ended)
		for ev := range w.Events {
			if text, err := os.ReadFile(ev.Name); err != nil || string(text) != reported[ev.Name] {
				continue
			}
			if err := errors.Join(do(ev.Name), os.WriteFile(ev.Name, nil, 0o644)); err != nil {
				m.t.Error(err)
			}
		}
	}()
	return func(ctx context.Context) error {
		for file, word := range reported {
			for {
				text, err := os.ReadFile(file)
				if err != nil {
					return err
				}
				if string(text) != word {
					break
				}
				select {
				case <-time.After(time.Millisecond):
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}
		return nil
	}
}
