package container

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// identity is the effective user, group and SELinux label of a container. The container's fields
// override the pod's.
type identity struct {
	user, group *int64
	nonRoot     *bool
	selinux     *v1.SELinuxOptions
}

func effectiveIdentity(p *v1.Pod, c *v1.Container) identity {
	var id identity
	if sc := p.Spec.SecurityContext; sc != nil {
		id = identity{sc.RunAsUser, sc.RunAsGroup, sc.RunAsNonRoot, sc.SELinuxOptions}
	}
	if sc := c.SecurityContext; sc != nil {
		id.user = or(sc.RunAsUser, id.user)
		id.group = or(sc.RunAsGroup, id.group)
		id.nonRoot = or(sc.RunAsNonRoot, id.nonRoot)
		id.selinux = or(sc.SELinuxOptions, id.selinux)
	}
	return id
}

func or[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

// imageUser is the user that an image configures: a UID, or a name that only the image can resolve.
// An image without a user runs as root.
type imageUser struct {
	uid  *int64
	name string
}

// checkNonRoot returns an error for a container with runAsNonRoot that would run as root, or whose
// user cannot be verified.
func checkNonRoot(p *v1.Pod, c *v1.Container, id identity, image imageUser) error {
	if id.nonRoot == nil || !*id.nonRoot {
		return nil
	}
	where := fmt.Sprintf("(pod: %q, container: %s)", describe(p), c.Name)
	switch {
	case id.user != nil && *id.user == 0:
		return fmt.Errorf("container's runAsUser breaks non-root policy %s", where)
	case id.user != nil:
		return nil
	case image.uid != nil && *image.uid == 0:
		return fmt.Errorf("container has runAsNonRoot and image will run as root %s", where)
	case image.uid == nil && image.name != "":
		return fmt.Errorf(
			"container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root %s",
			image.name, where)
	case image.uid != nil:
		if problems := validation.IsValidUserID(*image.uid); len(problems) > 0 {
			return fmt.Errorf(
				"container has runAsNonRoot and image has an invalid user id (%d). (Must be 1-(%d)): %s %s",
				*image.uid, math.MaxInt32, strings.Join(problems, "; "), where)
		}
	}
	return nil
}

// securityInput is the input of containerSecurity.
type securityInput struct {
	pod            *v1.Pod
	container      *v1.Container
	identity       identity
	image          imageUser
	groups         []int64 // of the pod's volumes
	targetID       string
	userns         *runtimeapi.UserNamespace
	seccompDefault bool
	seccompRoot    string
	masked         []string
}

// containerSecurity builds the security context of a container.
func containerSecurity(in securityInput) (*runtimeapi.LinuxContainerSecurityContext, error) {
	sc := in.container.SecurityContext
	if sc == nil {
		sc = &v1.SecurityContext{}
	}
	podSC := in.pod.Spec.SecurityContext
	if podSC == nil {
		podSC = &v1.PodSecurityContext{}
	}
	out := &runtimeapi.LinuxContainerSecurityContext{
		Capabilities:             capabilities(sc.Capabilities),
		Privileged:               isTrue(sc.Privileged),
		NamespaceOptions:         namespaces(in.pod, in.targetID, in.userns),
		SelinuxOptions:           selinuxOptions(in.identity.selinux),
		RunAsUser:                int64Value(in.identity.user),
		RunAsGroup:               int64Value(in.identity.group),
		ReadonlyRootfs:           isTrue(sc.ReadOnlyRootFilesystem),
		SupplementalGroups:       supplementalGroups(podSC, in.groups),
		SupplementalGroupsPolicy: groupsPolicy(podSC.SupplementalGroupsPolicy),
		NoNewPrivs:               sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation,
	}
	if out.RunAsUser == nil {
		out.RunAsUser, out.RunAsUsername = int64Value(in.image.uid), in.image.name
	}
	if sc.ProcMount == nil || *sc.ProcMount != v1.UnmaskedProcMount {
		out.MaskedPaths, out.ReadonlyPaths = in.masked, readonlyPaths
	}
	var err error
	if out.Seccomp, err = seccomp(or(sc.SeccompProfile, podSC.SeccompProfile), in.seccompDefault,
		in.seccompRoot); err != nil {
		return nil, err
	}
	if out.Apparmor, err = appArmor(appArmorProfile(in.pod, in.container)); err != nil {
		return nil, err
	}
	// Runtimes from before the field Apparmor read the profile from this one.
	//lint:ignore SA1019 for runtimes that do not know its successor
	out.ApparmorProfile = legacyAppArmor(out.Apparmor)
	return out, nil
}

func isTrue(b *bool) bool { return b != nil && *b }

func int64Value(v *int64) *runtimeapi.Int64Value {
	if v == nil {
		return nil
	}
	return &runtimeapi.Int64Value{Value: *v}
}

func capabilities(c *v1.Capabilities) *runtimeapi.Capability {
	if c == nil {
		return nil
	}
	out := &runtimeapi.Capability{}
	for _, a := range c.Add {
		out.AddCapabilities = append(out.AddCapabilities, string(a))
	}
	for _, d := range c.Drop {
		out.DropCapabilities = append(out.DropCapabilities, string(d))
	}
	return out
}

func selinuxOptions(o *v1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if o == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}

// supplementalGroups returns the supplemental groups of a pod's processes: the fsGroup, those of
// the specification, those of its volumes.
func supplementalGroups(sc *v1.PodSecurityContext, volumes []int64) []int64 {
	var out []int64
	if sc.FSGroup != nil {
		out = append(out, *sc.FSGroup)
	}
	out = append(out, sc.SupplementalGroups...)
	return append(out, volumes...)
}

func groupsPolicy(p *v1.SupplementalGroupsPolicy) runtimeapi.SupplementalGroupsPolicy {
	if p != nil && *p == v1.SupplementalGroupsPolicyStrict {
		return runtimeapi.SupplementalGroupsPolicy_Strict
	}
	return runtimeapi.SupplementalGroupsPolicy_Merge
}

// seccomp returns the seccomp profile. If the specification has none, the node's configuration
// decides.
func seccomp(p *v1.SeccompProfile, runtimeDefault bool, root string) (*runtimeapi.SecurityProfile, error) {
	if p == nil {
		if runtimeDefault {
			return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
		}
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
	}
	switch p.Type {
	case v1.SeccompProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
	case v1.SeccompProfileTypeUnconfined:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
	case v1.SeccompProfileTypeLocalhost:
		if p.LocalhostProfile == nil || *p.LocalhostProfile == "" {
			//lint:ignore ST1005 users see this text, which is upstream's
			return nil, errors.New("localhostProfile must be set if seccompProfile type is Localhost.")
		}
		if !filepath.IsLocal(*p.LocalhostProfile) {
			return nil, fmt.Errorf("seccomp profile %q is not inside the profile directory", *p.LocalhostProfile)
		}
		return &runtimeapi.SecurityProfile{
			ProfileType:  runtimeapi.SecurityProfile_Localhost,
			LocalhostRef: filepath.Join(root, *p.LocalhostProfile),
		}, nil
	default:
		return nil, fmt.Errorf("invalid seccomp profile type %q", p.Type)
	}
}

// appArmorProfile returns the profile that the container's field, the deprecated annotation or the
// pod's field selects, in this order. Annotations of API pods are converted to fields by the API
// server, but those of static pods are not.
func appArmorProfile(p *v1.Pod, c *v1.Container) *v1.AppArmorProfile {
	if sc := c.SecurityContext; sc != nil && sc.AppArmorProfile != nil {
		return sc.AppArmorProfile
	}
	// An invalid annotation does not override the pod's profile.
	if profile := appArmorFromAnnotation(p.Annotations[annotationAppArmor+c.Name]); profile != nil {
		return profile
	}
	if sc := p.Spec.SecurityContext; sc != nil {
		return sc.AppArmorProfile
	}
	return nil
}

func appArmorFromAnnotation(a string) *v1.AppArmorProfile {
	switch a {
	case "runtime/default":
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}
	case "unconfined":
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}
	}
	if name, ok := strings.CutPrefix(a, "localhost/"); ok {
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
	}
	return nil
}

func appArmor(p *v1.AppArmorProfile) (*runtimeapi.SecurityProfile, error) {
	if p == nil {
		return nil, nil
	}
	switch p.Type {
	case v1.AppArmorProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
	case v1.AppArmorProfileTypeUnconfined:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
	case v1.AppArmorProfileTypeLocalhost:
		if p.LocalhostProfile == nil || *p.LocalhostProfile == "" {
			return nil, errors.New("missing localhost apparmor profile name")
		}
		return &runtimeapi.SecurityProfile{
			ProfileType:  runtimeapi.SecurityProfile_Localhost,
			LocalhostRef: *p.LocalhostProfile,
		}, nil
	default:
		return nil, fmt.Errorf("unknown apparmor profile type: %q", p.Type)
	}
}

func legacyAppArmor(p *runtimeapi.SecurityProfile) string {
	switch {
	case p == nil:
		return ""
	case p.ProfileType == runtimeapi.SecurityProfile_RuntimeDefault:
		return "runtime/default"
	case p.ProfileType == runtimeapi.SecurityProfile_Unconfined:
		return "unconfined"
	default:
		return "localhost/" + p.LocalhostRef
	}
}

// readonlyPaths are the kernel paths that containers can read but not write by default.
var readonlyPaths = []string{
	"/proc/bus",
	"/proc/fs",
	"/proc/irq",
	"/proc/sys",
	"/proc/sysrq-trigger",
}

// maskedPaths returns the paths that are hidden from containers by default. The thermal throttling
// counters of each CPU are among them: they are a side channel.
func maskedPaths(root string) []string {
	paths := []string{
		"/proc/asound",
		"/proc/acpi",
		"/proc/interrupts",
		"/proc/kcore",
		"/proc/keys",
		"/proc/latency_stats",
		"/proc/timer_list",
		"/proc/timer_stats",
		"/proc/sched_debug",
		"/proc/scsi",
		"/sys/firmware",
		"/sys/devices/virtual/powercap",
	}
	const cpus = "sys/devices/system/cpu"
	entries, err := os.ReadDir(filepath.Join(root, cpus))
	if err != nil {
		return paths // a machine without this directory has no such counters
	}
	for _, e := range entries {
		throttle := filepath.Join(cpus, e.Name(), "thermal_throttle")
		if _, err := os.Stat(filepath.Join(root, throttle)); err == nil {
			paths = append(paths, "/"+throttle)
		}
	}
	return paths
}
