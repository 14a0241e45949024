package logind

import (
	"path/filepath"
	"syscall"
	"time"
)

// D-Bus names.
const (
	loginName = "org.freedesktop.login1"
	loginPath = "/org/freedesktop/login1"
	loginFace = "org.freedesktop.login1.Manager"

	systemdName = "org.freedesktop.systemd1"
	systemdPath = "/org/freedesktop/systemd1"
	systemdFace = "org.freedesktop.systemd1.Manager"

	unit   = "systemd-logind.service"
	reread = int32(syscall.SIGHUP) // the signal to reload the configuration
)

// Properties of the inhibitor lock, as shown by systemd-inhibit --list.
const (
	lockWhat = "shutdown"
	lockWho  = "kubelet"
	lockWhy  = "Kubelet needs time to handle node shutdown"
	lockMode = "delay"
)

// Dir is the directory of logind's configuration drop-ins.
const Dir = "/etc/systemd/logind.conf.d"

const dropIn = "99-kubelet.conf"

// DropIn returns the path of the drop-in in dir.
func DropIn(dir string) string { return filepath.Join(dir, dropIn) }

// callTimeout is the timeout of calls.
const callTimeout = 10 * time.Second
