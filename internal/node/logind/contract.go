package logind

import (
	"path/filepath"
	"syscall"
	"time"
)

// Names on the bus.
const (
	loginName = "org.freedesktop.login1"
	loginPath = "/org/freedesktop/login1"
	loginFace = "org.freedesktop.login1.Manager"

	systemdName = "org.freedesktop.systemd1"
	systemdPath = "/org/freedesktop/systemd1"
	systemdFace = "org.freedesktop.systemd1.Manager"

	unit   = "systemd-logind.service"
	reread = int32(syscall.SIGHUP) // the signal that has it read its settings again
)

// What the lock says, as systemd-inhibit --list shows it.
const (
	lockWhat = "shutdown"
	lockWho  = "kubelet"
	lockWhy  = "Kubelet needs time to handle node shutdown"
	lockMode = "delay"
)

// Dir is where settings of the login manager are dropped in.
const Dir = "/etc/systemd/logind.conf.d"

const dropIn = "99-kubelet.conf"

// DropIn is the file that is dropped into dir.
func DropIn(dir string) string { return filepath.Join(dir, dropIn) }

// answerWithin is how long the other side may take over an answer.
const answerWithin = 10 * time.Second
