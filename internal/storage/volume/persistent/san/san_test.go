package san

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"keelson/internal/pods/pod"
	"keelson/internal/storage/mount"
	"keelson/internal/storage/volume"
	"keelson/internal/storage/volume/persistent"
	poll "keelson/test/kit/await"
	"keelson/test/kit/eventlog"
	"keelson/test/kit/need"
	"keelson/test/kit/parity"
	"keelson/test/kit/volumenode"
)

const iqn = "iqn.2001-04.com.example:disk"

// admin is a stand-in for iscsiadm: a target with LUNs behind several portals, and sessions that
// attach its disks. It exits as iscsiadm does. At the call named by "die" it signals its parent and
// hangs, before or after its effect.
const admin = `#!/bin/sh
D=DIR
echo "$*" >> $D/calls
die() { [ "$(cat $D/die 2>/dev/null)" = "$1$(wc -l < $D/calls)" ] && { kill -USR1 $PPID; exec sleep 60; }; }
args="$*"
while [ $# -gt 0 ]; do case "$1" in -p) p=$2;; -T) t=$2;; -I) i=$2;; esac; shift; done
die before
code=0
s="$D/sessions/$p $t $i"
case "$args" in
*--discover*) case "$p" in *refused*) echo "iscsiadm: cannot make connection" >&2; code=4;; *) touch "$D/nodes/$p $t $i";; esac;;
*--login*) if [ -e "$s" ]; then code=15; else touch "$s"; while read lun dev; do ln -s $dev $D/dev/disk/by-path/ip-$p-iscsi-$t-lun-$lun; done < $D/luns; fi;;
*--logout*) if [ -e "$s" ]; then rm "$s" $D/dev/disk/by-path/ip-$p-iscsi-$t-*; else code=21; fi;;
*"-m iface"*"-o show"*) printf 'iface.iscsi_ifacename = default\niface.transport_name = tcp\niface.initiatorname = <empty>\niface.mtu = <empty>\n';;
*"-m iface"*"-o new"*) touch "$D/ifaces/$i";;
*"-m iface"*"-o delete"*) [ -e "$D/ifaces/$i" ] && rm "$D/ifaces/$i" || code=21;;
esac
die after
exit $code
`

// machine is a node with disks on a storage network.
type machine struct {
	t    *testing.T
	root string // root directory
	dir  string // of /dev and /sys, and of the stand-in
	disk string
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	return newMachineAt(t, root, t.TempDir())
}

func newMachineAt(t *testing.T, root, dir string) *machine {
	t.Helper()
	need.Root(t, "mounting")
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		need.Skip(t, "this machine has no loop devices", err)
	}
	must(t, os.MkdirAll(root, 0o755))
	m := &machine{t: t, root: root, dir: dir}
	for _, d := range []string{"dev/disk/by-path", "dev/disk/by-id", "sys/block", "sessions", "nodes", "ifaces"} {
		must(t, os.MkdirAll(filepath.Join(m.dir, d), 0o755))
	}
	file := filepath.Join(m.dir, "disk.img")
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, os.Truncate(file, 16<<20))
	var err error
	m.disk, err = mount.AttachLoop(file)
	must(t, err)
	t.Cleanup(func() {
		points, err := mount.At(root)
		if err != nil {
			t.Error(err)
		}
		for _, p := range points {
			t.Errorf("left mounted: %s", p)
			_ = mount.Unmount(p)
		}
		if err := mount.DetachLoop(file); err != nil {
			t.Error(err)
		}
	})
	m.write("luns", "0 "+m.disk+"\n1 "+m.disk+"\n")
	must(t, os.WriteFile(filepath.Join(m.dir, "iscsiadm"), []byte(strings.ReplaceAll(admin, "DIR", m.dir)), 0o755))
	return m
}

func (m *machine) write(name, text string) {
	m.t.Helper()
	path := filepath.Join(m.dir, name)
	must(m.t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(m.t, os.WriteFile(path, []byte(text), 0o644))
}

// has returns the names in a directory of the machine.
func (m *machine) has(dir string) []string {
	entries, err := os.ReadDir(filepath.Join(m.dir, dir))
	must(m.t, err)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// calls returns the calls of iscsiadm since the last time.
func (m *machine) calls() string {
	text, err := os.ReadFile(filepath.Join(m.dir, "calls"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		m.t.Fatal(err)
	}
	_ = os.Remove(filepath.Join(m.dir, "calls"))
	return string(text)
}

func (m *machine) config() Config {
	guard := mount.NewGuard()
	return Config{
		RootDir: m.root,
		Guard:   guard,
		Sharing: volume.Ownership{Guard: guard},
		Machine: m.dir,
		Tools:   mount.Tools{Path: m.dir + ":/usr/sbin:/usr/bin:/sbin:/bin"},
		Secret: func(_ context.Context, namespace, name string) (*v1.Secret, error) {
			return &v1.Secret{
				Data: map[string][]byte{
					"discovery.sendtargets.auth.username": []byte("d"),
					"node.session.auth.username":          []byte("u"),
					"node.session.auth.password":          []byte("of " + namespace + "/" + name),
				},
			}, nil
		},
	}
}

func (m *machine) request(
	uid types.UID, plugin, name string, pv v1.PersistentVolumeSource, block bool,
) persistent.Request {
	return persistent.Request{
		Pod:   &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}},
		Place: volume.PlaceOf(m.root, uid, plugin, name, block),
		Spec: persistent.Spec{
			Name:  name,
			Block: block,
			PV: &v1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec:       v1.PersistentVolumeSpec{PersistentVolumeSource: pv},
			},
		},
	}
}

func target(lun int32, change func(*v1.ISCSIPersistentVolumeSource)) v1.PersistentVolumeSource {
	src := &v1.ISCSIPersistentVolumeSource{TargetPortal: "192.0.2.1", IQN: iqn, Lun: lun}
	if change != nil {
		change(src)
	}
	return v1.PersistentVolumeSource{ISCSI: src}
}

// clean checks that nothing is left of any disk.
func (m *machine) clean(p *Plugin) {
	m.t.Helper()
	if left := append(append(m.has("sessions"), m.has("dev/disk/by-path")...), m.has("ifaces")...); len(left) > 0 {
		m.t.Errorf("left of the sessions: %v", left)
	}
	if all, err := p.Devices(); err != nil || len(all) > 0 {
		m.t.Errorf("left of the records: %v, %v", all, err)
	}
	if points, err := mount.At(m.root); err != nil || len(points) > 0 {
		m.t.Errorf("left mounted: %v, %v", points, err)
	}
}

func TestISCSI(t *testing.T) {
	parity.ProvesPart(t, 3, "VOL-51")
	parity.ProvesPart(t, 8, "VOL-17")
	m := newMachine(t)
	p := NewISCSI(m.config())
	r := m.request("u1", p.Name(), "pv1", target(0, nil), false)
	r.Pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To[int64](3000)}
	traits, err := p.Describe(t.Context(), r.Spec)
	if err != nil || traits.ID != "kubernetes.io/iscsi/192.0.2.1:"+iqn+":0" || !traits.Attach || !p.Serves(r.Spec) {
		t.Fatalf("it is %+v, %v", traits, err)
	}
	must(t, p.Stage(t.Context(), r))
	where := "-p 192.0.2.1:3260 "
	node := "-m node " + where + "-T " + iqn + " -I default "
	want := "-m discoverydb -t sendtargets " + where + "-I default -o new\n-m discoverydb -t sendtargets " + where +
		"-I default --discover\n" +
		node + "--login\n" + node + "-o update -n node.startup -v manual\n"
	if got := m.calls(); got != want {
		t.Errorf("calls of iscsiadm:\n%swant\n%s", got, want)
	}
	global := filepath.Join(m.root, "plugins/kubernetes.io/iscsi/iface-default/192.0.2.1:3260-"+iqn+"-lun-0")
	if on, err := mount.IsPoint(global); err != nil || !on {
		t.Fatalf("it is not mounted for the node: %v", err)
	}
	out, err := p.Publish(t.Context(), r)
	must(t, err)
	if has, err := mount.HasGroup(out.Path, 3000, false); err != nil || !has {
		t.Errorf("the pod's group has the disk: %v, %v", has, err)
	}
	must(t, os.WriteFile(filepath.Join(out.Path, "f"), []byte("kept"), 0o600))
	// The next agent finds it, and stages it again before it is used.
	p = NewISCSI(m.config())
	if all, err := p.Devices(); err != nil || len(all) != 1 || all[0].Traits != traits {
		t.Errorf("found %+v, %v", all, err)
	}
	if got, err := p.DeviceOf(r.Place); err != nil || got != traits {
		t.Errorf("the pod has %+v, %v", got, err)
	}
	m.calls()
	must(t, p.Stage(t.Context(), r))
	if got := m.calls(); got != "" {
		t.Errorf("a disk that is in use is attached again: %s", got)
	}
	again, err := p.Publish(t.Context(), r)
	if err != nil || again != out {
		t.Errorf("published again: %+v, %v", again, err)
	}
	// Another LUN of the target uses the same session; the first one to be detached leaves it.
	second := m.request("u2", p.Name(), "pv2", target(1, nil), true)
	must(t, p.Stage(t.Context(), second))
	device, err := p.Publish(t.Context(), second)
	if err != nil || device.Device != filepath.Join(m.dir, "dev/disk/by-path/ip-192.0.2.1:3260-iscsi-"+iqn+"-lun-1") {
		t.Errorf("the device is %+v, %v", device, err)
	}
	m.write("sys/block/"+filepath.Base(m.disk)+"/device/delete", "")
	// A disk of the same target staged by another agent keeps the session, too.
	foreign := filepath.Join(m.root, "plugins/kubernetes.io/iscsi/iface-default/192.0.2.1:3260-"+iqn+"-lun-5")
	must(t, os.MkdirAll(foreign, 0o750))
	must(t, mount.Tmpfs(foreign, 1<<16))
	must(t, p.Unpublish(t.Context(), r.Place))
	must(t, p.Unstage(t.Context(), persistent.Device{Traits: traits}))
	if len(m.has("sessions")) != 1 {
		t.Error("the session was ended under another disk")
	}
	if got, err := os.ReadFile(filepath.Join(m.dir, "sys/block", filepath.Base(m.disk), "device/delete")); err != nil ||
		string(got) != "1" {
		t.Errorf("the kernel was not asked to remove the disk: %q, %v", got, err)
	}
	both, err := p.Describe(t.Context(), second.Spec)
	must(t, err)
	must(t, p.Unstage(t.Context(), persistent.Device{Traits: both}))
	if len(m.has("sessions")) != 1 {
		t.Error("the session was ended under another agent's disk")
	}
	must(t, mount.Unmount(foreign))
	third := m.request("u3", p.Name(), "pv3", target(0, nil), false)
	must(t, p.Stage(t.Context(), third))
	must(t, p.Unstage(t.Context(), persistent.Device{Traits: traits}))
	m.clean(p)
	must(t, p.Unstage(t.Context(), persistent.Device{Traits: traits})) // idempotent
}

// A multipath device is waited for 10 s if the multipath daemon is running and there is more than
// one path.
func TestMultipathWait(t *testing.T) {
	parity.ProvesPart(t, 3, "VOL-51")
	if discoveryTimeout != 30*time.Second {
		t.Errorf("discovery may take %v", discoveryTimeout)
	}
	dir := t.TempDir()
	n := node{root: dir, tools: mount.Tools{Path: dir}}
	var paths []string
	for _, name := range []string{"sda", "sdb"} {
		paths = append(paths, filepath.Join(dir, name))
		must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	for _, c := range []struct {
		name   string
		daemon bool
		paths  []string
		joined time.Duration // when the multipath device appears; 0: never
		takes  time.Duration
		want   string
	}{
		{"without the daemon", false, paths, 0, 0, "sda"},
		{"one path", true, paths[:1], 0, 0, "sda"},
		{"two paths that are never joined", true, paths, 0, 10 * time.Second, "sda"},
		{"two paths that are joined", true, paths, 4 * time.Second, 4 * time.Second, "dev/dm-7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.daemon {
				must(t, os.WriteFile(filepath.Join(dir, "multipath"), nil, 0o755))
			}
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				if c.joined > 0 {
					go func() {
						time.Sleep(c.joined - time.Millisecond)
						if err := os.MkdirAll(filepath.Join(dir, "sys/block/dm-7/slaves/sdb"), 0o755); err != nil {
							t.Error(err)
						}
					}()
				}
				got, err := n.multipath(t.Context(), c.paths)
				if took := time.Since(began); err != nil || got != filepath.Join(dir, c.want) || took != c.takes {
					t.Errorf("%s, %v after %v, want %s after %v", got, err, took, c.want, c.takes)
				}
			})
		})
	}
}

// iscsiadm settings that the volume specifies.
func TestISCSISettings(t *testing.T) {
	parity.ProvesPart(t, 3, "VOL-51")
	for _, tc := range []struct {
		name   string
		change func(*v1.ISCSIPersistentVolumeSource)
		logged []string
	}{
		{"CHAP", func(s *v1.ISCSIPersistentVolumeSource) {
			s.DiscoveryCHAPAuth, s.SessionCHAPAuth, s.SecretRef = true, true, &v1.SecretReference{
				Namespace: "sec",
				Name:      "chap",
			}
		}, []string{"-o update -n discovery.sendtargets.auth.authmethod -v CHAP",
			"-o update -n discovery.sendtargets.auth.username -v d",
			"-o update -n node.session.auth.authmethod -v CHAP", "-o update -n node.session.auth.username -v u",
			"-o update -n node.session.auth.password -v of sec/chap"}},
		{
			"an initiator name",
			func(s *v1.ISCSIPersistentVolumeSource) { s.InitiatorName = ptr.To("iqn.2001-04.com.example:me") },
			[]string{
				"-m iface -I default -o show",
				"-m iface -I 192.0.2.1:3260:pv1 -o new",
				"-m iface -I 192.0.2.1:3260:pv1 -o update -n iface.transport_name -v tcp",
				"-m iface -I 192.0.2.1:3260:pv1 -o update -n iface.initiatorname -v iqn.2001-04.com.example:me",
				"-T " + iqn + " -I 192.0.2.1:3260:pv1 --login",
			},
		},
		{
			"several portals, one of which does not respond",
			func(s *v1.ISCSIPersistentVolumeSource) { s.Portals = []string{"refused", "192.0.2.2:99"} },
			[]string{
				"-p refused:3260 -I default --discover",
				"-p refused:3260 -I default -o delete",
				"-p 192.0.2.2:99 -T " + iqn + " -I default --login",
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := newMachine(t)
			p := NewISCSI(m.config())
			r := m.request("u1", p.Name(), "pv1", target(0, tc.change), false)
			must(t, p.Stage(t.Context(), r))
			logged := m.calls()
			for _, want := range tc.logged {
				if !strings.Contains(logged, want+"\n") {
					t.Errorf("iscsiadm was not called with %q but\n%s", want, logged)
				}
			}
			record, err := os.ReadFile(p.recordPath(*describe(t, p, r)))
			if err != nil || strings.Contains(string(record), "chap") {
				t.Errorf("the record is %s, %v", record, err)
			}
			traits, err := p.Describe(t.Context(), r.Spec)
			must(t, err)
			must(t, p.Unstage(t.Context(), persistent.Device{Traits: traits}))
			m.clean(p)
		})
	}
}

func describe(t *testing.T, p *Plugin, r persistent.Request) *record {
	t.Helper()
	rec, err := p.net.describe(r.Spec)
	must(t, err)
	return rec
}

// shown returns the message of the event.
func shown(err error) string {
	var f *volume.Failure
	if !errors.As(err, &f) {
		return fmt.Sprintf("not a failure: %v", err)
	}
	return f.Text()
}

func TestFailures(t *testing.T) {
	const waitFor = `MountVolume.WaitForAttach failed for volume "pv1" : `
	m := newMachine(t)
	none := m.config()
	none.Tools.Path = "/nonexistent"
	p := NewISCSI(none)
	r := m.request("u1", p.Name(), "pv1", target(0, nil), false)
	if err := p.Stage(t.Context(), r); !errors.Is(err, mount.ErrNoTool) ||
		!strings.Contains(err.Error(),
			"iscsiadm is not installed on this node: install open-iscsi or iscsi-initiator-utils") {
		t.Errorf("without iscsiadm: %v", err)
	} else if !strings.HasPrefix(shown(err), waitFor+"iscsiadm is not installed") {
		t.Errorf("without iscsiadm events show %s", shown(err))
	}
	p = NewISCSI(m.config())
	r = m.request("u1", p.Name(),
		"pv1", target(0, func(s *v1.ISCSIPersistentVolumeSource) { s.TargetPortal = "refused" }),
		false)
	if err := p.Stage(t.Context(), r); err == nil || persistent.IsUnknown(err) ||
		!strings.Contains(err.Error(),
			"iSCSI portal refused:3260: find targets: iscsiadm: exit status 4: iscsiadm: cannot make connection") {
		t.Errorf("a portal that is away: %v", err)
	} else if want := waitFor + "failed to get any path for iscsi disk, last err seen:" +
		"\niscsi: failed to sendtargets to portal refused:3260 output: iscsiadm: cannot make connection\n, " +
		"err exit status 4"; shown(err) != want {
		t.Errorf("of a portal that is away events show %s, want %s", shown(err), want)
	}
	r = m.request("u1", p.Name(), "pv1", target(7, nil), false)
	if err := p.Stage(t.Context(), r); err == nil || persistent.IsUnknown(err) ||
		!strings.Contains(err.Error(), "timed out waiting for device of target "+iqn+", LUN 7") {
		t.Errorf("a LUN that does not exist: %v", err)
	} else if want := waitFor + "failed to get any path for iscsi disk, last err seen:" +
		"\nTimed out waiting for device at path /dev/disk/by-path/ip-192.0.2.1:3260-iscsi-" + iqn + "-lun-7 " +
		"after 10s"; shown(err) != want {
		t.Errorf("of a LUN that does not exist events show %s, want %s", shown(err), want)
	}
	r = m.request("u1", p.Name(), "pv1", target(0, func(s *v1.ISCSIPersistentVolumeSource) {
		s.SessionCHAPAuth, s.SecretRef = true, &v1.SecretReference{Namespace: "sec", Name: "none"}
	}), false)
	noSecret := m.config()
	noSecret.Secret = func(context.Context, string, string) (*v1.Secret, error) { return nil, errors.New("not found") }
	want := `MountVolume.NewMounter initialization failed for volume "pv1" : couldn't get secret sec/none error: not found`
	if err := NewISCSI(noSecret).Stage(t.Context(), r); shown(err) != want {
		t.Errorf("of a missing secret events show %s, want %s", shown(err), want)
	}
	for _, change := range []func(*v1.ISCSIPersistentVolumeSource){
		func(s *v1.ISCSIPersistentVolumeSource) {
			s.IQN = "../../x"
		}, func(s *v1.ISCSIPersistentVolumeSource) { s.TargetPortal = "--logout" },
		func(s *v1.ISCSIPersistentVolumeSource) {
			s.ISCSIInterface = "a/b"
		}, func(s *v1.ISCSIPersistentVolumeSource) { s.Portals = []string{""} },
	} {
		if _, err := p.Describe(t.Context(),
			m.request("u1", p.Name(), "pv1", target(0, change), false).Spec); err == nil {
			t.Error("words that lead elsewhere are taken")
		}
	}
	m.clean(p)
	f := NewFC(m.config())
	fcr := m.request("u1", f.Name(), "pv1",
		v1.PersistentVolumeSource{FC: &v1.FCVolumeSource{
			TargetWWNs: []string{"50060e801049cfd1"},
			Lun:        ptr.To[int32](0),
		}},
		false)
	if err := f.Stage(t.Context(), fcr); err == nil ||
		!strings.Contains(err.Error(), "no Fibre Channel adapter is on this node") {
		t.Errorf("without an adapter: %v", err)
	} else if want := waitFor + "no fc disk found"; shown(err) != want {
		t.Errorf("without an adapter events show %s, want %s", shown(err), want)
	}
	m.clean(f)
}

// An unusable record is restored by the pod that uses the disk, and the unusable one kept until the
// disk is detached. Mounts do not change.
func TestRestoreUnusableDiskRecord(t *testing.T) {
	for what, damage := range map[string]func(string) string{
		"empty":             func(string) string { return "" },
		"cut off":           func(s string) string { return s[:len(s)/2] },
		"of another disk":   func(s string) string { return strings.ReplaceAll(s, "lun-0", "lun-1") },
		"of another volume": func(s string) string { return strings.Replace(s, iqn, iqn+"x", 1) },
	} {
		t.Run(what, func(t *testing.T) {
			m := newMachine(t)
			reported := &eventlog.Log{}
			cfg := m.config()
			cfg.Sharing.Events = reported
			p := NewISCSI(cfg)
			r := m.request("u1", p.Name(), "pv1", target(0, nil), false)
			must(t, p.Stage(t.Context(), r))
			out, err := p.Publish(t.Context(), r)
			must(t, err)
			path := p.recordPath(*describe(t, p, r))
			good, err := os.ReadFile(path)
			must(t, err)
			bad := damage(string(good))
			if bad == string(good) {
				t.Fatal("no record was damaged")
			}
			must(t, os.WriteFile(path, []byte(bad), 0o600))
			m.calls()
			p = NewISCSI(cfg)
			must(t, p.Stage(t.Context(), r))
			if again, err := p.Publish(t.Context(), r); err != nil || again != out {
				t.Errorf("published again: %+v, %v", again, err)
			}
			if logged := m.calls(); logged != "" {
				t.Errorf("iscsiadm was called: %s", logged)
			}
			now, err := os.ReadFile(path)
			must(t, err)
			aside, err := os.ReadFile(path + ".bad")
			if err != nil || string(aside) != bad || string(now) != string(good) {
				t.Errorf("the record is %s, aside is %q, %v", now, aside, err)
			}
			if got := reported.Texts(); len(got) != 1 ||
				!strings.Contains(got[0], "Warning StateFileUnusable read record "+path) ||
				!strings.Contains(got[0], "it is kept as "+path+".bad") {
				t.Errorf("events: %q", got)
			}
			traits, err := p.Describe(t.Context(), r.Spec)
			must(t, err)
			must(t, p.Unpublish(t.Context(), r.Place))
			must(t, p.Unstage(t.Context(), persistent.Device{Traits: traits}))
			m.clean(p)
			if left, err := filepath.Glob(filepath.Dir(path) + "/*"); err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
		})
	}
}

// Two disks of one target are attached and detached in any order: the session lasts as long as
// either of them.
func TestDisksShareSession(t *testing.T) {
	m := newMachine(t)
	p := NewISCSI(m.config())
	var reqs []persistent.Request
	var devices []persistent.Device
	for lun := range int32(2) {
		r := m.request("u1", p.Name(), fmt.Sprintf("pv%d", lun), target(lun, nil), true)
		traits, err := p.Describe(t.Context(), r.Spec)
		must(t, err)
		reqs, devices = append(reqs, r), append(devices, persistent.Device{Traits: traits})
	}
	both := func(a, b func() error) {
		t.Helper()
		done := make(chan error, 1)
		go func() { done <- a() }()
		must(t, b())
		must(t, <-done)
	}
	for range 20 {
		both(func() error { return p.Stage(t.Context(), reqs[0]) },
			func() error { return p.Stage(t.Context(), reqs[1]) })
		both(func() error { return p.Unstage(t.Context(), devices[0]) },
			func() error { return p.Unstage(t.Context(), devices[1]) })
		m.clean(p)
		must(t, p.Stage(t.Context(), reqs[0]))
		both(func() error { return p.Unstage(t.Context(), devices[0]) },
			func() error { return p.Stage(t.Context(), reqs[1]) })
		if len(m.has("sessions")) != 1 || len(m.has("dev/disk/by-path")) == 0 {
			t.Errorf("the session of a disk in use was ended: %v", m.has("sessions"))
		}
		must(t, p.Unstage(t.Context(), devices[1]))
		m.clean(p)
		if t.Failed() {
			return
		}
	}
}

// The agent is killed at each call of iscsiadm, before and after its effect. The next agent undoes
// it by the record.
func TestISCSIKilledAtAnyStep(t *testing.T) {
	m := newMachine(t)
	own := func(s *v1.ISCSIPersistentVolumeSource) { s.InitiatorName = ptr.To("iqn.2001-04.com.example:me") }
	killed := make(chan os.Signal, 1)
	signal.Notify(killed, syscall.SIGUSR1)
	defer signal.Stop(killed)
	deaths := 0
	for n := 1; ; n++ {
		alive := false
		for _, when := range []string{"before", "after"} {
			m.calls()
			m.write("die", fmt.Sprintf("%s%d\n", when, n))
			p := NewISCSI(m.config())
			r := m.request("u1", p.Name(), "pv1", target(0, own), false)
			ctx, kill := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				select {
				case <-killed:
					deaths++
					kill()
				case <-done:
				}
			}()
			err := p.Stage(ctx, r)
			close(done)
			kill()
			if err == nil {
				alive = true
			} else if !persistent.IsUnknown(err) {
				t.Errorf("killed %s call %d: %v is taken for an answer", when, n, err)
			}
			must(t, os.Remove(filepath.Join(m.dir, "die")))
			p = NewISCSI(m.config())
			all, err := p.Devices()
			if err != nil || len(all) != 1 {
				t.Fatalf("killed %s call %d: the next agent finds %v, %v", when, n, all, err)
			}
			if err := p.Unstage(t.Context(), all[0]); err != nil {
				t.Errorf("killed %s call %d: %v", when, n, err)
			}
			m.clean(p)
		}
		if alive {
			break
		}
	}
	if deaths < 10 {
		t.Errorf("%d deaths", deaths)
	}
}

// A disk in use is not detached because the network fails when the next agent starts.
func TestDiskInUseIsKept(t *testing.T) {
	m := newMachine(t)
	p := NewISCSI(m.config())
	r := m.request("u1", p.Name(), "pv1", target(0, nil), true)
	must(t, p.Stage(t.Context(), r))
	link := filepath.Join(m.dir, "dev/disk/by-path/ip-192.0.2.1:3260-iscsi-"+iqn+"-lun-0")
	must(t, os.Remove(link))
	must(t, os.Rename(filepath.Join(m.dir, "iscsiadm"), filepath.Join(m.dir, "away")))
	must(t,
		os.WriteFile(filepath.Join(m.dir, "iscsiadm"), []byte("#!/bin/sh\necho \"$*\" >> "+m.dir+"/calls\nexit 8\n"),
			0o755))
	m.calls()
	if err := p.Stage(t.Context(), r); !persistent.IsUnknown(err) {
		t.Errorf("Stage = %v", err)
	}
	if logged := m.calls(); strings.Contains(logged, "--logout") || len(m.has("sessions")) != 1 {
		t.Errorf("calls of iscsiadm:\n%s", logged)
	}
	must(t, os.Rename(filepath.Join(m.dir, "away"), filepath.Join(m.dir, "iscsiadm")))
	must(t, os.Symlink(m.disk, link))
	traits, err := p.Describe(t.Context(), r.Spec)
	must(t, err)
	must(t, p.Unstage(t.Context(), persistent.Device{Traits: traits}))
	m.clean(p)
}

// With the attach/detach controller, a disk waits for the node status; without, it does not.
func TestAttachedByControllerOrAgent(t *testing.T) {
	parity.ProvesPart(t, 10, "VOL-10")
	parity.ProvesPart(t, 2, "VOL-24")
	for _, controller := range []bool{true, false} {
		m := newMachine(t)
		cfg := m.config()
		looks := make(chan struct{}, 100)
		reported := &eventlog.Log{}
		agent := volumenode.NewAgent(persistent.Config{
			RootDir: m.root,
			Guard:   cfg.Guard,
			Events:  reported,
			Plugins: []persistent.Plugin{NewISCSI(cfg)},
			Node:    func() v1.NodeStatus { looks <- struct{}{}; return v1.NodeStatus{} },
			Attach:  controller,
		}, volume.Config{Events: eventlog.Discard{}})
		manager, lasting := agent.Manager, agent.Persistent
		stop := agent.Start()
		lasting.Settle()
		p := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "u1"},
			Spec: v1.PodSpec{
				Containers: []v1.Container{{Name: "c", VolumeMounts: []v1.VolumeMount{{Name: "v", MountPath: "/v"}}}},
				Volumes: []v1.Volume{
					{
						Name: "v",
						VolumeSource: v1.VolumeSource{
							ISCSI: &v1.ISCSIVolumeSource{TargetPortal: "192.0.2.1", IQN: iqn},
						},
					},
				},
			},
		}
		manager.Want(p)
		if controller {
			for range 3 { // each attempt reads the node status once, so that two have ended
				<-looks
			}
			if s := manager.State("u1"); s.Ready || s.Err != nil || m.calls() != "" {
				t.Errorf("before the controller has attached it: %+v", s)
			}
		} else {
			poll.Until(t, "the volume", func() (string, bool) {
				state := manager.State("u1")
				return fmt.Sprintf("%+v", state), state.Ready
			})
			if got := reported.Texts(); !slices.Equal(got,
				[]string{`Normal SuccessfulAttachVolume AttachVolume.Attach succeeded for volume "v" `}) {
				t.Errorf("events: %q", got)
			}
			if use := lasting.InUse(); len(use) != 1 ||
				use[0] != v1.UniqueVolumeName("kubernetes.io/iscsi/192.0.2.1:"+iqn+":0") {
				t.Errorf("in use: %v", use)
			}
		}
		manager.Release(pod.RefOf(p))
		poll.True(t, "the end of its use", func() bool { return len(lasting.InUse()) == 0 })
		must(t, stop())
		m.clean(NewISCSI(cfg))
	}
}

func TestFC(t *testing.T) {
	parity.Proves(t, "VOL-52")
	for _, tc := range []struct {
		name, link string
		src        v1.FCVolumeSource
		id, place  string
	}{
		{
			"by target and LUN",
			"by-path/pci-0000:41:00.0-fc-0x50060e801049cfd1-lun-3",
			v1.FCVolumeSource{TargetWWNs: []string{"50060E801049CFD1"}, Lun: ptr.To[int32](3)},
			"kubernetes.io/fc/[50060E801049CFD1]:3",
			"50060E801049CFD1-lun-3",
		},
		{
			"by what the disk calls itself",
			"by-id/scsi-3600508b400105e210000900000490000",
			v1.FCVolumeSource{WWIDs: []string{"3600508b400105e210000900000490000"}},
			"kubernetes.io/fc/[3600508b400105e210000900000490000]",
			"3600508b400105e210000900000490000",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := newMachine(t)
			p := NewFC(m.config())
			r := m.request("u1", p.Name(), "pv1", v1.PersistentVolumeSource{FC: &tc.src}, false)
			traits, err := p.Describe(t.Context(), r.Spec)
			if err != nil || traits.ID != tc.id || !traits.Attach {
				t.Fatalf("it is %+v, %v", traits, err)
			}
			// The adapter attaches the disk when it is rescanned, with two paths and their
			// multipath device.
			disk := filepath.Base(m.disk)
			must(t, os.MkdirAll(filepath.Join(m.dir, "sys/class/fc_host/host3"), 0o755))
			m.write("sys/block/dm-0/slaves/"+disk, "")
			m.write("sys/block/dm-0/slaves/sdz", "")
			m.write("sys/block/"+disk+"/device/delete", "")
			m.write("sys/block/sdz/device/delete", "")
			must(t, os.Symlink(m.disk, filepath.Join(m.dir, "dev/dm-0")))
			must(t,
				os.WriteFile(filepath.Join(m.dir, "multipath"), []byte("#!/bin/sh\necho \"$*\" > "+m.dir+"/flushed\n"),
					0o755))
			must(t, os.MkdirAll(filepath.Join(m.dir, "sys/class/scsi_host/host3"), 0o755))
			scan := filepath.Join(m.dir, "sys/class/scsi_host/host3/scan")
			must(t, syscall.Mkfifo(scan, 0o600))
			// udev has not yet removed the link of an earlier attachment.
			link := filepath.Join(m.dir, "dev/disk", tc.link)
			must(t, os.Symlink(filepath.Join(m.dir, "dev/sdx"), link))
			came := make(chan error, 1)
			go func() {
				asked, err := os.ReadFile(scan)
				if err == nil && string(asked) != "- - -" {
					err = fmt.Errorf("the adapter got %q", asked)
				}
				came <- errors.Join(err, os.Remove(link), os.Symlink(m.disk, link))
			}()
			must(t, p.Stage(t.Context(), r))
			must(t, <-came)
			out, err := p.Publish(t.Context(), r)
			must(t, err)
			global := filepath.Join(m.root, "plugins/kubernetes.io/fc", tc.place)
			points, err := mount.At(m.root)
			if err != nil || len(points) != 2 || !slices.Contains(points, global) ||
				!slices.Contains(points, out.Path) {
				t.Errorf("mounted at %v, %v", points, err)
			}
			if got, err := p.DeviceOf(r.Place); err != nil || got != traits {
				t.Errorf("the pod has %+v, %v", got, err)
			}
			must(t, p.Unpublish(t.Context(), r.Place))
			must(t, p.Unstage(t.Context(), persistent.Device{Traits: traits}))
			if got, err := os.ReadFile(filepath.Join(m.dir, "flushed")); err != nil ||
				string(got) != "-f "+filepath.Join(m.dir, "dev/dm-0")+"\n" {
				t.Errorf("multipath got %q, %v", got, err)
			}
			for _, d := range []string{disk, "sdz"} {
				if got, err := os.ReadFile(filepath.Join(m.dir, "sys/block", d, "device/delete")); err != nil ||
					string(got) != "1" {
					t.Errorf("%s was not given up: %q, %v", d, got, err)
				}
			}
			must(t, os.Remove(link))
			m.clean(p)
		})
	}
}

// If a device disappears between staging and mapping, the next attempt stages it again.
func TestDeviceDisappearsBeforeMapping(t *testing.T) {
	m := newMachine(t)
	raw := filepath.Join(m.dir, "dev/disk", fcLinks[1])
	must(t, os.MkdirAll(filepath.Join(m.dir, "sys/class/fc_host/host3"), 0o755))
	m.write("sys/class/scsi_host/host3/scan", "")
	must(t, os.Symlink(m.disk, raw))
	var p *losing
	n := volumenode.Start(volumenode.Config{
		Root: m.root,
		Plugins: func(guard *mount.Guard, events pod.Events) []persistent.Plugin {
			cfg := m.config()
			cfg.Guard, cfg.Sharing = guard, volume.Ownership{Guard: guard, Events: events}
			p = &losing{Plugin: NewFC(cfg), link: raw}
			return []persistent.Plugin{p}
		},
		Claims: map[string]volumenode.Claim{"raw": {Source: networks[1].raw, Block: true}},
		Pods:   map[string][]string{"a": {"raw"}},
	})
	defer n.Stop()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	must(t, n.Bring(ctx))
	must(t, n.Take(ctx))
	must(t, n.Empty(ctx))
	if got := p.stagings.Load(); got != 2 {
		t.Errorf("staged %d times", got)
	}
}

// losing is a plugin whose disk disappears after it was first staged, and is back when it is staged
// again.
type losing struct {
	*Plugin
	link     string
	stagings atomic.Int32
}

func (l *losing) Stage(ctx context.Context, r persistent.Request) error {
	away := l.link + "-away"
	if l.stagings.Load() == 1 {
		if err := os.Rename(away, l.link); err != nil {
			return err
		}
	}
	if err := l.Plugin.Stage(ctx, r); err != nil || l.stagings.Add(1) > 1 {
		return err
	}
	return os.Rename(l.link, away)
}

// A format that takes long is not started again by each attempt.
func TestLongFormatIsNotRestarted(t *testing.T) {
	for _, p := range []*Plugin{NewISCSI(Config{}), NewFC(Config{})} {
		if p.cfg.Tools.Alive == nil {
			t.Errorf("%s: no progress was reported", p.Name())
		}
	}
}
