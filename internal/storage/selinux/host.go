package selinux

import (
	selinux "github.com/opencontainers/selinux/go-selinux"
	"github.com/opencontainers/selinux/go-selinux/label"
	v1 "k8s.io/api/core/v1"
)

// Host is the SELinux state of this machine.
type Host struct {
	// labels returns the label of a container's process and that of its files. What the options
	// omit is the policy's default.
	labels func(options []string) (process, file string, err error)
	// release releases the level that labels reserved for the process.
	release func(process string)
}

// Here returns the machine's SELinux state; nil if SELinux is disabled.
func Here() *Host {
	if !selinux.GetEnabled() {
		return nil
	}
	return &Host{labels: label.InitLabels, release: selinux.ReleaseLabel}
}

// FileLabel returns the label of files that a container with these options can use. It returns ""
// if that depends on the level that the runtime will choose.
func (h *Host) FileLabel(o *v1.SELinuxOptions) (string, error) {
	if o == nil || o.Level == "" {
		return "", nil
	}
	process, file, err := h.labels(options(o))
	if err != nil {
		return "", err
	}
	if process == "" {
		return "", nil // the policy has no containers, and the options were ignored
	}
	// The level was specified by a user, may be used by many pods, and is not reserved.
	h.release(process)
	return file, nil
}

// options converts a pod's options to the library's form.
func options(o *v1.SELinuxOptions) []string {
	var out []string
	for _, part := range []struct{ name, value string }{
		{"user", o.User},
		{"role", o.Role},
		{"type", o.Type},
		{"level", o.Level},
	} {
		if part.value != "" {
			out = append(out, part.name+":"+part.value)
		}
	}
	return out
}
