package admission

import (
	"fmt"
	"slices"
	"strings"

	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/node/util/sysctl"

	"keelson/internal/pods/pod"
)

// sysctls refuses sysctls that are not allowed, and those of a namespace that the pod
// shares with the host.
func (r Rules) sysctls(in Input) *pod.Rejection {
	sc := in.Pod.Spec.SecurityContext
	if sc == nil {
		return nil
	}
	for _, s := range sc.Sysctls {
		name := sysctl.NormalizeName(s.Name)
		why := ""
		switch {
		case !r.allows(name):
			why = "not allowlisted"
		case strings.HasPrefix(name, "net.") && in.Pod.Spec.HostNetwork:
			why = "not allowed with host net enabled"
		case isIPC(name) && in.Pod.Spec.HostIPC:
			why = "not allowed with host ipc enabled"
		}
		if why != "" {
			return &pod.Rejection{Reason: ReasonSysctl, Message: fmt.Sprintf("forbidden sysctl: %q %s", name, why)}
		}
	}
	return nil
}

func (r Rules) allows(name string) bool {
	if since, listed := safeSysctls[name]; listed {
		if since == "" || r.Kernel != nil && r.Kernel.AtLeast(utilversion.MustParseGeneric(since)) {
			return true
		}
	}
	return slices.ContainsFunc(r.AllowedUnsafeSysctls, func(allowed string) bool {
		allowed = sysctl.NormalizeName(allowed)
		prefix, pattern := strings.CutSuffix(allowed, "*")
		return name == allowed || pattern && strings.HasPrefix(name, prefix)
	})
}

// isIPC reports whether the sysctl is namespaced by IPC namespace.
func isIPC(name string) bool {
	return name == "kernel.sem" || strings.HasPrefix(name, "kernel.shm") || strings.HasPrefix(name, "kernel.msg") ||
		strings.HasPrefix(name, "fs.mqueue.")
}
