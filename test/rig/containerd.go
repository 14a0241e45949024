package rig

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"

	"golang.org/x/sys/unix"
)

// containerdConfig has the settings that differ between rigs and machines.
type containerdConfig struct {
	Dir, Socket, CDI, Runc, Plugins, Sandbox, Snapshotter string

	RestrictOOM bool
	Old         bool // containerd 1.x: version 2 of the file
}

// containerdFile is the template of containerd's configuration. It disables plug-ins that use files outside the folder
// or need devices that no rig has.
var containerdFile = template.Must(template.New("containerd.toml").Parse(`
version = {{if .Old}}2{{else}}3{{end}}
root = "{{.Dir}}/containerd/root"
state = "{{.Dir}}/containerd/state"
disabled_plugins = [
  "io.containerd.nri.v1.nri",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.erofs", "io.containerd.snapshotter.v1.zfs",
]

[grpc]
  address = "{{.Socket}}"

[plugins."io.containerd.internal.v1.opt"]
  path = "{{.Dir}}/containerd/opt"
{{if .Old}}
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = {{.RestrictOOM}}
  sandbox_image = "{{.Sandbox}}"
  netns_mounts_under_state_dir = true
  enable_unprivileged_ports = true
  enable_unprivileged_icmp = true
  enable_cdi = true
  cdi_spec_dirs = ["{{.CDI}}"]
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{{.Plugins}}"
    conf_dir = "{{.Dir}}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{{.Snapshotter}}"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "{{.Runc}}"
        Root = "{{.Dir}}/runc"
        SystemdCgroup = false
{{else}}
[plugins."io.containerd.shim.v1.manager"]
  socket_dir = "{{.Dir}}/s"

[plugins."io.containerd.cri.v1.images"]
  snapshotter = "{{.Snapshotter}}"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{{.Sandbox}}"

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = {{.RestrictOOM}}
  netns_mounts_under_state_dir = true
  cdi_spec_dirs = ["{{.CDI}}"]
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{{.Plugins}}"]
    conf_dir = "{{.Dir}}/cni"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      BinaryName = "{{.Runc}}"
      Root = "{{.Dir}}/runc"
      SystemdCgroup = false
{{end}}`))

func (c containerdConfig) render() []byte {
	var b bytes.Buffer
	if err := containerdFile.Execute(&b, c); err != nil {
		panic(err) // the template and its data are both above
	}
	return b.Bytes()
}

const overlay = "overlayfs"

// snapshotter returns overlayfs if the folder's file system can be the upper layer of an overlay. Another overlay
// cannot be one. Otherwise it returns the snapshotter that makes plain copies.
func snapshotter(dir string) string {
	tmp, err := os.MkdirTemp(dir, "overlay-")
	if err != nil {
		return overlay
	}
	defer os.RemoveAll(tmp)
	for _, d := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(tmp, d), 0o755); err != nil {
			return overlay
		}
	}
	merged := filepath.Join(tmp, "merged")
	opts := "lowerdir=" + tmp + "/lower,upperdir=" + tmp + "/upper,workdir=" + tmp + "/work"
	if err := unix.Mount("overlay", merged, "overlay", 0, opts); err != nil {
		return "native"
	}
	if err := unix.Unmount(merged, 0); err != nil {
		return "native"
	}
	return overlay
}

// mayLowerOOMScore returns whether this process, and so containerd, may lower the OOM score of a process. This needs
// CAP_SYS_RESOURCE.
func mayLowerOOMScore() bool {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(status)) {
		if v, ok := strings.CutPrefix(line, "CapEff:"); ok {
			caps, err := strconv.ParseUint(strings.TrimSpace(v), 16, 64)
			return err == nil && caps&(1<<unix.CAP_SYS_RESOURCE) != 0
		}
	}
	return false
}
