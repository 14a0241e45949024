package csi

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	v1 "k8s.io/api/core/v1"

	"keelson/internal/host/checkpoint"
	"keelson/internal/storage/volume"
)

// An unusable record can often be restored from other sources: the directory of a device consists of
// the driver's name and a hash of the volume's handle, and a pod's volume is a mount of a device.
// The record is then written again, and the unusable one is kept beside it until the volume is
// removed. A volume that cannot be identified is left alone and stays in use.

// deviceRecord returns the record of a device.
func (p *Plugin) deviceRecord(dir recordDir) (record, error) {
	r, err := readRecord(dir.path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, err
	}
	if err == nil {
		err = dir.check(r)
	}
	if err == nil || dir.block {
		return r, err
	}
	for _, known := range p.knownVolumes() {
		if fresh := (record{Driver: known.driver, Handle: known.handle}); dir.check(fresh) == nil {
			return fresh, p.replace(dir.path, err, fresh)
		}
	}
	return r, err
}

// check checks that a record belongs to this directory.
func (d recordDir) check(r record) error {
	driver, sum := filepath.Base(filepath.Dir(d.path)), filepath.Base(d.path)
	switch {
	case d.block && r.Name != "" && pathName(r.Name) != d.name:
		return fmt.Errorf("read record in %s: it is of volume %q", d.path, r.Name)
	case !d.block && (r.Driver != driver || fmt.Sprintf("%x", sha256.Sum256([]byte(r.Handle))) != sum):
		return fmt.Errorf("read record in %s: it is of volume %q of driver %s", d.path, r.Handle, r.Driver)
	}
	return nil
}

// pathName returns a volume's name as a directory name.
func pathName(name string) string { return strings.ReplaceAll(name, "/", "~") }

// knownVolumes returns the volumes of the node status and of the records of pods.
func (p *Plugin) knownVolumes() []source {
	var out []source
	if p.cfg.InUse != nil {
		for _, name := range p.cfg.InUse() {
			if s, err := splitName(string(name)); err == nil {
				out = append(out, s)
			}
		}
	}
	dirs, err := filepath.Glob(filepath.Join(p.cfg.RootDir, "pods/*/volumes", pathName(PluginName), "*"))
	if err != nil {
		return out
	}
	for _, dir := range dirs {
		if r, err := readRecord(dir); err == nil {
			out = append(out, source{driver: r.Driver, handle: r.Handle})
		}
	}
	return out
}

// recordOf returns the record of a pod's volume.
func (p *Plugin) recordOf(place volume.Place) (record, error) {
	if place.Block {
		return p.deviceRecord(recordDir{p.paths.blockRecord(place.Name), place.Name, true})
	}
	r, err := readRecord(place.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return r, err
	case err == nil && r.Name != "" && pathName(r.Name) != place.Name:
		err = fmt.Errorf("read record in %s: it is of volume %q", place.Path, r.Name)
	case err == nil && r.Lifecycle != ephemeral && !p.hasDevice(r):
		// The record of a device is written before those of pods, and removed after them.
		err = fmt.Errorf("read record in %s: nothing is known of volume %q of driver %s", place.Path, r.Handle,
			r.Driver)
		if _, ok := p.behind(place); !ok {
			return r, nil
		}
	}
	if err == nil {
		return r, nil
	}
	if fresh, ok := p.behind(place); ok {
		return fresh, p.replace(place.Path, err, fresh)
	}
	return r, err
}

func (p *Plugin) hasDevice(r record) bool {
	had, err := hasRecord(p.paths.device(r.Driver, r.Handle))
	return had || err != nil
}

// behind uses the mount table to find the device of a pod's volume. It does not access any file
// system.
func (p *Plugin) behind(place volume.Place) (record, bool) {
	table, err := mountinfo.GetMounts(mountinfo.PrefixFilter(p.cfg.RootDir))
	if err != nil {
		return record{}, false
	}
	at := func(path string) *mountinfo.Info {
		var last *mountinfo.Info
		for _, m := range table {
			if m.Mountpoint == path {
				last = m
			}
		}
		return last
	}
	mine := at(p.target(place))
	if mine == nil {
		return record{}, false
	}
	var found []record
	for _, dir := range p.recordDirs() {
		if dir.block {
			continue
		}
		m := at(filepath.Join(dir.path, globalMount))
		if m == nil || m.Major != mine.Major || m.Minor != mine.Minor || m.Root != mine.Root && m.Root != "/" {
			continue
		}
		if r, err := p.deviceRecord(dir); err == nil {
			found = append(found, record{
				Driver:       r.Driver,
				Handle:       r.Handle,
				Name:         place.Name,
				Node:         p.cfg.Node,
				Lifecycle:    lasting,
				AttachmentID: AttachmentName(r.Handle, r.Driver, p.cfg.Node),
			})
		}
	}
	if len(found) != 1 {
		return record{}, false
	}
	return found[0], true
}

// putRecord writes a record. It keeps an unusable one beside it.
func (p *Plugin) putRecord(dir string, r record) error {
	if _, err := readRecord(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return p.replace(dir, err, r)
	}
	return writeRecord(dir, r)
}

// replace writes a record again. The old one is renamed only after the new one is complete.
func (p *Plugin) replace(dir string, why error, r record) error {
	path := filepath.Join(dir, recordFile)
	aside := path + checkpoint.SuffixBad
	if err := errors.Join(remove(aside), os.Link(path, aside)); err != nil {
		return fmt.Errorf("keep a record that cannot be used: %w", errors.Join(why, err))
	}
	if err := writeRecord(dir, r); err != nil {
		return err
	}
	p.cfg.Sharing.Events.Node(v1.EventTypeWarning, checkpoint.EventUnusable,
		fmt.Sprintf("%v; it is kept as %s, and restored for volume %q of driver %s", why, aside, r.Handle, r.Driver))
	return nil
}
