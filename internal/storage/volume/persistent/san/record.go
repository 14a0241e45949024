package san

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"keelson/internal/host/checkpoint"
	"keelson/internal/storage/mount"
)

const (
	dirMode    = 0o750
	devicesDir = "volumeDevices"
	suffix     = ".json"
)

// record identifies a disk that may be attached.
type record struct {
	ID    string `json:"id"`   // of the device
	Name  string `json:"name"` // of the volume
	Key   string `json:"key"`  // of its place below the plugin's directory
	Block bool   `json:"block,omitempty"`

	Portals   []string `json:"portals,omitempty"`
	IQN       string   `json:"iqn,omitempty"`
	Iface     string   `json:"iface,omitempty"`     // of the session
	From      string   `json:"from,omitempty"`      // the interface that Iface is a copy of, if any
	Initiator string   `json:"initiator,omitempty"` // of that copy
	LUN       int32    `json:"lun"`

	WWNs  []string `json:"wwns,omitempty"`
	WWIDs []string `json:"wwids,omitempty"`

	Label string `json:"label,omitempty"` // SELinux label of the mount

	// CHAP secrets are read again each time and not recorded.
	discoveryCHAP, sessionCHAP bool
	fsType                     string
	readOnly                   bool
}

// target returns the key of the disk's target, which other disks may share.
func (r record) target() string {
	if r.IQN != "" {
		return r.IQN + " over " + r.Iface
	}
	return r.Key
}

func (p *Plugin) base() string               { return filepath.Join(p.cfg.RootDir, "plugins", p.net.name()) }
func (p *Plugin) global(r record) string     { return filepath.Join(p.base(), r.Key) }
func (p *Plugin) recordPath(r record) string { return p.global(r) + suffix }
func (p *Plugin) MapDir(name string) string  { return filepath.Join(p.base(), devicesDir, name) }
func (p *Plugin) writeRecord(r record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(p.recordPath(r)), dirMode); err != nil {
		return fmt.Errorf("record volume: %w", err)
	}
	if err := checkpoint.Put(p.recordPath(r), text, checkpoint.How{Mode: 0o644, Sync: true}); err != nil {
		return fmt.Errorf("record volume: %w", err)
	}
	return nil
}

// records returns all disks that may be attached, by their directory. If some cannot be read, it
// returns the others and an error.
func (p *Plugin) records() ([]record, error) {
	var out []record
	var errs []error
	for _, pattern := range []string{"*" + suffix, "*/*" + suffix} {
		files, err := filepath.Glob(filepath.Join(p.base(), pattern))
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			r, err := p.readRecord(f)
			switch {
			case errors.Is(err, fs.ErrNotExist):
			case err != nil:
				errs = append(errs, err)
			default:
				out = append(out, r)
			}
		}
	}
	return out, errors.Join(errs...)
}

func (p *Plugin) readRecord(path string) (record, error) {
	var r record
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err == nil && (r.ID == "" || p.recordPath(r) != path) {
		err = errors.New("it belongs to another disk")
	}
	if err != nil {
		return record{}, fmt.Errorf("read record %s: %w", path, err)
	}
	return r, nil
}

// restore writes the record of a disk again if it is unusable, from the specification of the pod that
// uses the disk. The unusable one is kept beside it until the disk is detached.
func (p *Plugin) restore(r record) error {
	path := p.recordPath(r)
	have, err := p.readRecord(path)
	if err == nil && have.ID != r.ID {
		err = fmt.Errorf("read record %s: it is of %s", path, have.ID)
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	aside := path + checkpoint.SuffixBad
	if failed := errors.Join(remove(aside), os.Link(path, aside)); failed != nil {
		return fmt.Errorf("keep a record that cannot be used: %w", errors.Join(err, failed))
	}
	if failed := p.writeRecord(r); failed != nil {
		return failed
	}
	p.cfg.Sharing.Events.Node(v1.EventTypeWarning, checkpoint.EventUnusable,
		fmt.Sprintf("%v; it is kept as %s, and restored for %s", err, aside, r.ID))
	return nil
}

// sweep removes temporary files and empty directories that a killed agent left.
func (p *Plugin) sweep() error {
	var errs []error
	for _, pattern := range []string{".*" + suffix + "-*", "*/.*" + suffix + "-*", "iface-*"} {
		left, err := filepath.Glob(filepath.Join(p.base(), pattern))
		errs = append(errs, err)
		for _, path := range left {
			if err := remove(path); !errors.Is(err, unix.ENOTEMPTY) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// unrecorded returns the iSCSI disks that another agent staged without a record, of which only the
// directory is known. Their sessions must not be ended.
func (p *Plugin) unrecorded() ([]record, error) {
	points, err := mount.At(p.base())
	if err != nil {
		return nil, err
	}
	var out []record
	for _, point := range points {
		if _, err := os.Lstat(point + suffix); err == nil {
			continue
		}
		iface, ok := strings.CutPrefix(filepath.Base(filepath.Dir(point)), "iface-")
		disk := filepath.Base(point)
		lun := strings.LastIndex(disk, "-lun-")
		if !ok || lun < 0 {
			continue
		}
		for _, kind := range []string{"-iqn.", "-eui.", "-naa."} { // prefixes of target names
			if at := strings.Index(disk, kind); at > 0 && at < lun {
				out = append(out, record{Iface: iface, Portals: []string{disk[:at]}, IQN: disk[at+1 : lun]})
			}
		}
	}
	return out, nil
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
