package san

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/storage/mount"
	"keelson/internal/storage/volume/persistent"
)

// discoveryTimeout bounds the discovery of targets at one portal.
const discoveryTimeout = 30 * time.Second

// Exit statuses of iscsiadm.
const (
	sessionExists = 15
	noObjects     = 21
)

type iscsi struct{ node }

func (iscsi) name() string { return "kubernetes.io/iscsi" }

func (n iscsi) check() error {
	_, err := n.tools.Find("iscsiadm")
	return err
}

func iscsiSource(s persistent.Spec) *v1.ISCSIPersistentVolumeSource {
	switch {
	case s.PV != nil:
		return s.PV.Spec.ISCSI
	case s.Inline != nil && s.Inline.ISCSI != nil:
		in := s.Inline.ISCSI
		out := &v1.ISCSIPersistentVolumeSource{
			TargetPortal:      in.TargetPortal,
			IQN:               in.IQN,
			Lun:               in.Lun,
			ISCSIInterface:    in.ISCSIInterface,
			FSType:            in.FSType,
			ReadOnly:          in.ReadOnly,
			Portals:           in.Portals,
			DiscoveryCHAPAuth: in.DiscoveryCHAPAuth,
			SessionCHAPAuth:   in.SessionCHAPAuth,
			InitiatorName:     in.InitiatorName,
		}
		if in.SecretRef != nil {
			out.SecretRef = &v1.SecretReference{Name: in.SecretRef.Name}
		}
		return out
	}
	return nil
}

// secretOf returns the CHAP secret of the volume. That of an inline volume is in the pod's
// namespace.
func secretOf(r persistent.Request) (namespace, name string) {
	src := iscsiSource(r.Spec)
	if src == nil || src.SecretRef == nil || !src.DiscoveryCHAPAuth && !src.SessionCHAPAuth {
		return "", ""
	}
	if r.Inline != nil {
		return r.Pod.Namespace, src.SecretRef.Name
	}
	return src.SecretRef.Namespace, src.SecretRef.Name
}

// describe names disks and directories as upstream does.
func (iscsi) describe(s persistent.Spec) (*record, error) {
	src := iscsiSource(s)
	if src == nil {
		return nil, nil
	}
	r := &record{
		Name:          s.Name,
		Block:         s.Block,
		IQN:           src.IQN,
		Iface:         src.ISCSIInterface,
		LUN:           src.Lun,
		discoveryCHAP: src.DiscoveryCHAPAuth,
		sessionCHAP:   src.SessionCHAPAuth,
		fsType:        src.FSType,
		readOnly:      s.ForReading(src.ReadOnly),
	}
	if r.Iface == "" {
		r.Iface = "default"
	}
	for _, p := range append([]string{src.TargetPortal}, src.Portals...) {
		if err := checkWord("iSCSI portal", p); err != nil {
			return nil, err
		}
		if p = withPort(p); !slices.Contains(r.Portals, p) {
			r.Portals = append(r.Portals, p)
		}
	}
	if src.InitiatorName != nil && *src.InitiatorName != "" {
		// A session with another initiator name needs its own interface.
		r.From, r.Initiator = r.Iface, *src.InitiatorName
		r.Iface = r.Portals[0] + ":" + s.Name
	}
	if err := errors.Join(checkWord("iSCSI target", r.IQN), checkWord("iSCSI interface", r.Iface)); err != nil {
		return nil, err
	}
	r.ID = fmt.Sprintf("kubernetes.io/iscsi/%s:%s:%d", src.TargetPortal, src.IQN, src.Lun)
	r.Key = fmt.Sprintf("iface-%s/%s-%s-lun-%d", r.Iface, r.Portals[0], r.IQN, r.LUN)
	return r, nil
}

// withPort adds the default port.
func withPort(portal string) string {
	if _, _, err := net.SplitHostPort(portal); err == nil {
		return portal
	}
	return net.JoinHostPort(strings.Trim(portal, "[]"), "3260")
}

// attach logs in to the target at every portal. One success is sufficient.
func (n iscsi) attach(ctx context.Context, r record, secret map[string]string) error {
	if r.From != "" {
		if err := n.copyIface(ctx, r); err != nil {
			return err
		}
	}
	var errs []error
	for _, portal := range r.Portals {
		if err := n.login(ctx, r, portal, secret); err != nil {
			errs = append(errs, pod.ShowAs(pod.TextOf(err), fmt.Errorf("iSCSI portal %s: %w", portal, err)))
		}
		if ctx.Err() != nil {
			return noPath(errs)
		}
	}
	if len(errs) == len(r.Portals) {
		return noPath(errs)
	}
	got, err := await(ctx, deviceTimeout, func() ([]string, error) { return n.paths(r) })
	switch {
	case err != nil:
		return err
	case len(got) == 0:
		err := fmt.Errorf("timed out waiting for device of target %s, LUN %d", r.IQN, r.LUN)
		link := fmt.Sprintf("/dev/disk/by-path/ip-%s-iscsi-%s-lun-%d", r.Portals[len(r.Portals)-1], r.IQN, r.LUN)
		text := fmt.Sprintf("Timed out waiting for device at path %s after %ds", link, int(deviceTimeout.Seconds()))
		return noPath(append(errs, pod.ShowAs(text, err)))
	}
	return ctx.Err()
}

// noPath is the error for a disk without any path. As upstream, events show the last error.
func noPath(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	text := "failed to get any path for iscsi disk, last err seen:\n" + pod.TextOf(errs[len(errs)-1])
	return pod.ShowAs(text, errors.Join(errs...))
}

func (n iscsi) login(ctx context.Context, r record, portal string, secret map[string]string) error {
	db := []string{"-m", "discoverydb", "-t", "sendtargets", "-p", portal, "-I", r.Iface}
	target := []string{"-m", "node", "-p", portal, "-T", r.IQN, "-I", r.Iface}
	if err := n.admin(ctx, append(slices.Clone(db), "-o", "new")...); err != nil {
		return err
	}
	if r.discoveryCHAP {
		if err := n.chap(ctx, db, "discovery.sendtargets.auth.", secret, "discoverydb", "discoverydb"); err != nil {
			text := fmt.Sprintf("iscsi: failed to update discoverydb to portal %s error: %s", portal, pod.TextOf(err))
			return pod.ShowAs(text, err)
		}
	}
	finds, stop := context.WithTimeout(ctx, discoveryTimeout)
	defer stop()
	if err := n.admin(finds, append(slices.Clone(db), "--discover")...); err != nil {
		output, ended := mount.Outcome(err)
		text := fmt.Sprintf("iscsi: failed to sendtargets to portal %s output: %s, err %v", portal, output, ended)
		return pod.ShowAs(text,
			errors.Join(fmt.Errorf("find targets: %w", err), n.admin(ctx, append(db, "-o", "delete")...)))
	}
	if r.sessionCHAP {
		if err := n.chap(ctx, target, "node.session.auth.", secret, "node", "node session"); err != nil {
			text := fmt.Sprintf("iscsi: failed to update iscsi node to portal %s error: %s", portal, pod.TextOf(err))
			return pod.ShowAs(text, err)
		}
	}
	err := n.admin(ctx, append(slices.Clone(target), "--login")...)
	if exitCode(err) == sessionExists {
		// The session is used by another LUN; the kernel may not have scanned this one yet.
		if got, perr := n.paths(r); perr == nil && len(got) == 0 {
			return n.admin(ctx, append(target, "-R")...)
		}
		return nil
	}
	if err != nil {
		output, ended := mount.Outcome(err)
		return pod.ShowAs(fmt.Sprintf("iscsi: failed to attach disk: Error: %s (%v)", output, ended),
			fmt.Errorf("log in: %w", err))
	}
	// The agent logs in, not the node at boot.
	return n.admin(ctx, append(target, "-o", "update", "-n", "node.startup", "-v", "manual")...)
}

// chap sets the CHAP secret in the record of a target. record and keys are upstream's names in
// error texts.
func (n iscsi) chap(
	ctx context.Context, what []string, prefix string, secret map[string]string, record, keys string,
) error {
	set := func(key, value string) error {
		return n.admin(ctx, append(slices.Clone(what), "-o", "update", "-n", key, "-v", value)...)
	}
	if err := set(prefix+"authmethod", "CHAP"); err != nil {
		output, _ := mount.Outcome(err)
		return pod.ShowAs(fmt.Sprintf("iscsi: failed to update %s with CHAP, output: %s", record, output), err)
	}
	for _, key := range []string{"username", "password", "username_in", "password_in"} {
		if value := secret[prefix+key]; value != "" {
			if err := set(prefix+key, value); err != nil {
				output, _ := mount.Outcome(err)
				text := fmt.Sprintf("iscsi: failed to update %s key %q error: %s", keys, prefix+key, output)
				return pod.ShowAs(text, fmt.Errorf("set %s: %w", prefix+key, err))
			}
		}
	}
	return nil
}

// copyIface creates an interface like another one, with another initiator name.
func (n iscsi) copyIface(ctx context.Context, r record) error {
	shown, err := n.tools.Run(ctx, "iscsiadm", "-m", "iface", "-I", r.From, "-o", "show")
	if err != nil {
		output, ended := mount.Outcome(err)
		return pod.ShowAs(fmt.Sprintf("iscsi: failed to show iface records: %s (%v)", output, ended),
			fmt.Errorf("read iSCSI interface %s: %w", r.From, err))
	}
	if err := n.admin(ctx, "-m", "iface", "-I", r.Iface, "-o", "new"); err != nil && exitCode(err) != sessionExists {
		output, ended := mount.Outcome(err)
		return pod.ShowAs(fmt.Sprintf("iscsi: failed to create new iface: %s (%v)", output, ended),
			fmt.Errorf("make iSCSI interface %s: %w", r.Iface, err))
	}
	notSet := func(err error) error {
		if err == nil {
			return nil
		}
		output, ended := mount.Outcome(err)
		text := fmt.Sprintf("iscsi: failed to update iface records: %s (%v). iface(%s) will be used", output, ended,
			r.From)
		return pod.ShowAs(text, err)
	}
	set := func(key, value string) error {
		return n.admin(ctx, "-m", "iface", "-I", r.Iface, "-o", "update", "-n", key, "-v", value)
	}
	for line := range strings.Lines(shown) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), " = ")
		if !ok || !strings.HasPrefix(key, "iface.") || value == "<empty>" || key == "iface.iscsi_ifacename" ||
			key == "iface.initiatorname" {
			continue
		}
		if err := set(key, value); err != nil {
			return notSet(err)
		}
	}
	return notSet(set("iface.initiatorname", r.Initiator))
}

// paths returns the devices of the LUN, in the order of its portals.
func (n iscsi) paths(r record) ([]string, error) {
	var out []string
	for _, portal := range r.Portals {
		name := fmt.Sprintf("ip-%s-iscsi-%s-lun-%d", portal, r.IQN, r.LUN)
		all, err := os.ReadDir(n.dev("disk/by-path"))
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		for _, e := range all {
			// Links for hardware adapters have a PCI address prefix.
			if e.Name() == name || strings.HasPrefix(e.Name(), "pci-") && strings.HasSuffix(e.Name(), "-"+name) {
				out = append(out, filepath.Join(n.dev("disk/by-path"), e.Name()))
			}
		}
	}
	return present(out)
}

// detach removes the disk, and logs out of the session unless another disk needs it.
func (n iscsi) detach(ctx context.Context, r record, others []record) error {
	paths, err := n.paths(r)
	if err != nil {
		return err
	}
	disks, err := n.flush(ctx, paths)
	if err != nil {
		return err
	}
	if err := n.deleteDisks(disks); err != nil {
		return err
	}
	for _, portal := range r.Portals {
		if slices.ContainsFunc(others, func(o record) bool {
			return o.IQN == r.IQN && o.Iface == r.Iface && slices.Contains(o.Portals, portal)
		}) {
			continue
		}
		target := []string{"-m", "node", "-p", portal, "-T", r.IQN, "-I", r.Iface}
		for _, step := range [][]string{{"--logout"}, {"-o", "delete"}} {
			if err := n.admin(ctx, append(slices.Clone(target), step...)...); err != nil && exitCode(err) != noObjects {
				return fmt.Errorf("iSCSI portal %s: %w", portal, err)
			}
		}
	}
	if r.From == "" {
		return nil
	}
	if err := n.admin(ctx, "-m", "iface", "-I", r.Iface, "-o", "delete"); err != nil && exitCode(err) != noObjects {
		return fmt.Errorf("remove iSCSI interface: %w", err)
	}
	return nil
}

func (n iscsi) admin(ctx context.Context, args ...string) error {
	_, err := n.tools.Run(ctx, "iscsiadm", args...)
	return err
}

// exitCode returns the exit status of a program; 0 if there is none.
func exitCode(err error) int {
	var failed *mount.ToolError
	if errors.As(err, &failed) {
		return failed.Code
	}
	return 0
}
