package san

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	v1 "k8s.io/api/core/v1"

	"keelson/internal/host/checkpoint"
	"keelson/internal/storage/mount"
	"keelson/internal/storage/volume"
	"keelson/internal/storage/volume/persistent"
)

// Config holds what a Plugin is built from. Fields are required unless their comment says
// otherwise.
type Config struct {
	RootDir string
	Guard   *mount.Guard
	Sharing volume.Ownership
	Tools   mount.Tools // may be zero
	// Secret reads a CHAP secret; nil: standalone.
	Secret func(ctx context.Context, namespace, name string) (*v1.Secret, error)
	// Machine is the directory of /dev and /sys; empty means the root.
	Machine string
}

// network is one type of storage network. Steps are idempotent.
type network interface {
	name() string
	// check returns an error if the node lacks what is needed.
	check() error
	// describe returns the record of a volume; nil if it is of another type.
	describe(s persistent.Spec) (*record, error)
	// attach attaches the disk to the node.
	attach(ctx context.Context, r record, secret map[string]string) error
	// paths returns the disk's devices from the links in /dev/disk; none if it is not attached.
	paths(r record) ([]string, error)
	// detach detaches the disk; others are the disks that stay attached.
	detach(ctx context.Context, r record, others []record) error
}

// Plugin serves volumes of one type of storage network.
type Plugin struct {
	cfg  Config
	net  network
	node node

	turns targetLocks
}

var (
	_ persistent.Plugin   = (*Plugin)(nil)
	_ persistent.Blocker  = (*Plugin)(nil)
	_ persistent.Labeller = (*Plugin)(nil)
)

// NewISCSI makes the plugin for iSCSI.
func NewISCSI(cfg Config) *Plugin {
	cfg.Tools.Alive = volume.Alive // formatting and repair have no time limit
	n := node{cfg.Machine, cfg.Tools}
	return &Plugin{cfg: cfg, net: iscsi{n}, node: n}
}

// NewFC makes the plugin for Fibre Channel.
func NewFC(cfg Config) *Plugin {
	cfg.Tools.Alive = volume.Alive
	n := node{cfg.Machine, cfg.Tools}
	return &Plugin{cfg: cfg, net: fc{n}, node: n}
}

func (p *Plugin) Name() string { return p.net.name() }

func (p *Plugin) Serves(s persistent.Spec) bool {
	r, err := p.net.describe(s)
	return r != nil || err != nil
}

func (p *Plugin) Describe(_ context.Context, s persistent.Spec) (persistent.Traits, error) {
	r, err := p.net.describe(s)
	if err != nil {
		return persistent.Traits{}, err
	}
	return persistent.Traits{ID: r.ID, Attach: true}, nil
}

// TakesLabel returns true: the file system of the disk can be mounted with a label, since it has no
// other mount on the node.
func (*Plugin) TakesLabel(context.Context, persistent.Spec) (bool, error) { return true, nil }

// Stage attaches the disk and mounts it.
func (p *Plugin) Stage(ctx context.Context, req persistent.Request) error {
	r, err := p.net.describe(req.Spec)
	if err != nil {
		return err
	}
	r.Label = req.Label
	_, err = os.Lstat(p.recordPath(*r))
	had := err == nil
	if had {
		if err := p.restore(*r); err != nil {
			return persistent.Unknown(err)
		}
		if is, err := p.isStaged(ctx, *r); is || err != nil {
			return persistent.Unknown(err)
		}
	}
	if err := p.net.check(); err != nil {
		return persistent.Failed(req, persistent.StepAttach, err)
	}
	secret, err := p.secret(ctx, req)
	if err != nil {
		return persistent.Failed(req, persistent.StepInit, err)
	}
	give, err := p.turns.take(ctx, r.target())
	if err != nil {
		return err
	}
	if err := p.writeRecord(*r); err != nil {
		give()
		return err
	}
	err = persistent.Failed(req, persistent.StepAttach, p.net.attach(ctx, *r, secret))
	give()
	if err == nil {
		err = p.stage(ctx, *r, req)
	}
	if err == nil || had || ctx.Err() != nil { // it may be in use from earlier
		return persistent.Unknown(err)
	}
	return persistent.Undone(err, p.unstage(ctx, *r))
}

// isStaged reports whether an earlier agent has staged the disk, which is then in use.
func (p *Plugin) isStaged(ctx context.Context, r record) (is bool, err error) {
	if r.Block {
		paths, err := p.net.paths(r)
		return len(paths) > 0, err
	}
	return mount.IsListed(p.global(r))
}

// stage mounts an attached disk.
func (p *Plugin) stage(ctx context.Context, r record, req persistent.Request) error {
	device, err := p.device(ctx, r)
	if err != nil || r.Block {
		return persistent.Failed(req, persistent.StepAttach, err)
	}
	global := p.global(r)
	return p.cfg.Guard.Do(ctx, global, "stage volume", func() error {
		if err := os.MkdirAll(global, dirMode); err != nil {
			return err
		}
		var options []string
		if r.readOnly {
			options = append(options, "ro")
		}
		options = req.MountOptions(append(options, req.LabelOption()...)...)
		return p.cfg.Tools.MountDisk(ctx, device, global, r.fsType, options)
	})
}

// device returns the device to use for the disk.
func (p *Plugin) device(ctx context.Context, r record) (string, error) {
	paths, err := p.net.paths(r)
	if err != nil {
		return "", err
	}
	if len(paths) == 0 {
		return "", persistent.NotStaged(fmt.Errorf("no device of volume %s is on this node", r.Name))
	}
	return p.node.multipath(ctx, paths)
}

// secret returns the volume's CHAP secret.
func (p *Plugin) secret(ctx context.Context, req persistent.Request) (map[string]string, error) {
	namespace, name := secretOf(req)
	if name == "" {
		return nil, nil
	}
	if p.cfg.Secret == nil {
		return nil, errors.New("no API server configured")
	}
	s, err := p.cfg.Secret(ctx, namespace, name)
	if err != nil {
		return nil, fmt.Errorf("couldn't get secret %s/%s error: %w", namespace, name, err)
	}
	out := map[string]string{}
	for k, v := range s.Data {
		out[k] = string(v)
	}
	return out, nil
}

// Unstage undoes Stage for the disk of the record.
func (p *Plugin) Unstage(ctx context.Context, d persistent.Device) error {
	all, err := p.records()
	for _, r := range all {
		if r.ID == d.ID {
			return p.unstage(ctx, r)
		}
	}
	return err // without a record nothing was done
}

func (p *Plugin) unstage(ctx context.Context, r record) error {
	global := p.global(r)
	err := p.cfg.Guard.Do(ctx, global, "unstage volume", func() error {
		if err := mount.Unmount(global); err != nil {
			return err
		}
		return remove(global) // only if it is empty
	})
	if err != nil {
		return err
	}
	give, err := p.turns.take(ctx, r.target())
	if err != nil {
		return err
	}
	defer give()
	all, err := p.records()
	if err != nil {
		return err // without all records, the session might be needed by another disk
	}
	others := slices.DeleteFunc(all, func(o record) bool { return o.ID == r.ID })
	foreign, err := p.unrecorded()
	if err != nil {
		return err
	}
	others = append(others, foreign...)
	if err := p.net.detach(ctx, r, others); err != nil {
		return err
	}
	for _, file := range []string{p.recordPath(r), p.recordPath(r) + checkpoint.SuffixBad} {
		if err := remove(file); err != nil {
			return err
		}
	}
	if r.From != "" { // both the interface and its directory are the volume's own
		return remove(filepath.Dir(global))
	}
	return nil
}

// Publish makes the staged file system, or the block device, available to a pod.
func (p *Plugin) Publish(ctx context.Context, req persistent.Request) (persistent.Published, error) {
	r, err := p.net.describe(req.Spec)
	if err != nil {
		return persistent.Published{}, err
	}
	if r.Block {
		device, err := p.device(ctx, *r)
		return persistent.Published{Device: device, ReadOnly: r.readOnly}, err
	}
	// With a label as mount option, files cannot be relabelled.
	out := persistent.Published{Path: req.Place.Path, ReadOnly: r.readOnly, Relabel: req.Label == ""}
	global := p.global(*r)
	done := false
	err = p.cfg.Guard.Do(ctx, req.Place.Path, "check mount point", func() (err error) {
		if done, err = mount.IsPoint(req.Place.Path); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	})
	if err != nil || done {
		return out, err
	}
	if !r.readOnly {
		if err := p.cfg.Sharing.SetFSGroup(ctx, req.Pod, global, false); err != nil {
			return persistent.Published{}, err
		}
	}
	err = p.cfg.Guard.Do(ctx, req.Place.Path, "publish volume", func() error {
		if err := os.MkdirAll(req.Place.Path, dirMode); err != nil {
			return err
		}
		var options []string
		if r.readOnly {
			options = append(options, "ro")
		}
		if err := mount.BindAt(global, req.Place.Path, options); err != nil {
			return persistent.Undone(err, remove(req.Place.Path))
		}
		return nil
	})
	return out, err
}

// Unpublish unmounts the volume from the pod. It never removes data.
func (p *Plugin) Unpublish(ctx context.Context, place volume.Place) error {
	if place.Block {
		return remove(place.Path)
	}
	return p.cfg.Guard.Do(ctx, place.Path, "unpublish volume", func() error {
		if err := mount.Unmount(place.Path); err != nil {
			return err
		}
		return remove(place.Path)
	})
}

// Devices returns the disks of the records.
func (p *Plugin) Devices() ([]persistent.Device, error) {
	swept := p.sweep()
	all, err := p.records()
	var out []persistent.Device
	for _, r := range all {
		out = append(out, persistent.Device{
			Traits: persistent.Traits{ID: r.ID, Attach: true, Label: r.Label},
			Name:   r.Name,
			Block:  r.Block,
		})
	}
	return out, errors.Join(swept, err)
}

// DeviceOf returns the disk of a pod's volume, by its mount or symlink.
func (p *Plugin) DeviceOf(place volume.Place) (persistent.Traits, error) {
	all, err := p.records()
	if err != nil {
		return persistent.Traits{}, err
	}
	table, err := mountinfo.GetMounts(nil) // no file system is accessed
	if err != nil {
		return persistent.Traits{}, fmt.Errorf("read mount table: %w", err)
	}
	on := func(path string) string {
		dev := ""
		for _, m := range table {
			if m.Mountpoint == path {
				dev = fmt.Sprintf("%d:%d", m.Major, m.Minor)
			}
		}
		return dev
	}
	mine := on(place.Path)
	for _, r := range all {
		if place.Block && r.Block && r.Name == place.Name || !place.Block && mine != "" && mine == on(p.global(r)) {
			return persistent.Traits{ID: r.ID, Attach: true, Label: r.Label}, nil
		}
	}
	return persistent.Traits{}, nil
}

// checkWord validates user input that becomes part of a path and of an argument.
func checkWord(what, s string) error {
	if s == "" || s[0] == '-' || s[0] == '.' || strings.ContainsAny(s, "/ \t\n\x00") {
		return fmt.Errorf("%s %q is invalid", what, s)
	}
	return nil
}
