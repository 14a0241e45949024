package selinux

import (
	selinux "github.com/opencontainers/selinux/go-selinux"
	"github.com/opencontainers/selinux/go-selinux/label"
	v1 "k8s.io/api/core/v1"
)

// Host is the SELinux of this machine.
type Host struct {
	// labels makes the labels of a container's process and of its files; what the
	// options leave out is the policy's.
	labels func(options []string) (process, file string, err error)
	// release gives back what labels keeps for the process.
	release func(process string)
}

// Here is the machine's SELinux; nil where it is off or was never there.
func Here() *Host {
	if !selinux.GetEnabled() {
		return nil
	}
	return &Host{labels: label.InitLabels, release: selinux.ReleaseLabel}
}

// FileLabel is the label of files that a container with these options can use. It is
// empty if nobody can tell before the runtime has chosen a level for the container.
func (h *Host) FileLabel(o *v1.SELinuxOptions) (string, error) {
	if o == nil || o.Level == "" {
		return "", nil
	}
	process, file, err := h.labels(options(o))
	if err != nil {
		return "", err
	}
	if process == "" {
		return "", nil // the policy knows no containers, and the options were not looked at
	}
	// The level is a user's choice and may be that of many; it is not reserved.
	h.release(process)
	return file, nil
}

// options are what a pod says, in the library's words.
func options(o *v1.SELinuxOptions) []string {
	var out []string
	for _, part := range []struct{ name, value string }{{"user", o.User}, {"role", o.Role}, {"type", o.Type}, {"level", o.Level}} {
		if part.value != "" {
			out = append(out, part.name+":"+part.value)
		}
	}
	return out
}
