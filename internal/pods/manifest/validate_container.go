package manifest

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"keelson/internal/pods/pod"
)

// validateContainers checks all containers of the pod. Their names are unique
// across the lists.
func validateContainers(s *v1.PodSpec, at *field.Path) (errs field.ErrorList) {
	if len(s.Containers) == 0 {
		errs = append(errs, field.Required(at.Child("containers"), ""))
	}
	volumes := map[string]*v1.Volume{}
	for i := range s.Volumes {
		volumes[s.Volumes[i].Name] = &s.Volumes[i]
	}
	seen := map[string]bool{}
	check := func(kind pod.Kind, c *v1.Container, at *field.Path) {
		if seen[c.Name] && c.Name != "" {
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		}
		seen[c.Name] = true
		errs = append(errs, validateContainer(c, s, volumes, at)...)
		if kind == pod.Init {
			errs = append(errs, validateInit(c, at)...)
			return
		}
		errs = append(errs, validateProbes(c, s, at)...)
	}
	for i := range s.InitContainers {
		c, at := &s.InitContainers[i], at.Child("initContainers").Index(i)
		check(pod.InitKind(c), c, at)
		errs = append(errs, uniqueHostPorts([]v1.Container{*c}, at)...)
	}
	for i := range s.Containers {
		check(pod.Regular, &s.Containers[i], at.Child("containers").Index(i))
	}
	return append(errs, uniqueHostPorts(s.Containers, at.Child("containers"))...)
}

// validateContainer checks what holds for containers of every kind.
func validateContainer(
	c *v1.Container, s *v1.PodSpec, volumes map[string]*v1.Volume, at *field.Path,
) (errs field.ErrorList) {
	errs = required(at.Child("name"), c.Name)
	if c.Name != "" {
		errs = append(errs, invalid(at.Child("name"), c.Name, validation.IsDNS1123Label(c.Name))...)
	}
	switch {
	case c.Image == "":
		errs = append(errs, field.Required(at.Child("image"), ""))
	case strings.TrimSpace(c.Image) != c.Image:
		errs = append(errs, field.Invalid(at.Child("image"), c.Image, "must not have leading or trailing whitespace"))
	}
	errs = append(errs, oneOf(c.ImagePullPolicy, at.Child("imagePullPolicy"), v1.PullAlways, v1.PullIfNotPresent,
		v1.PullNever)...)
	errs = append(errs, oneOf(c.TerminationMessagePolicy, at.Child("terminationMessagePolicy"),
		v1.TerminationMessageReadFile, v1.TerminationMessageFallbackToLogsOnError)...)
	errs = append(errs, validatePorts(c, s.HostNetwork, at.Child("ports"))...)
	errs = append(errs, validateEnv(c.Env, volumes, at.Child("env"))...)
	errs = append(errs, validateEnvFrom(c.EnvFrom, at.Child("envFrom"))...)
	errs = append(errs, validateMounts(c, volumes, at)...)
	errs = append(errs,
		validateResources(c.Resources, s.ResourceClaims, badContainerResource, at.Child("resources"))...)
	errs = append(errs, validateResize(c.ResizePolicy, s.RestartPolicy, at.Child("resizePolicy"))...)
	errs = append(errs, validateRestart(c, at)...)
	return append(errs, validateSecurity(c.SecurityContext, s.HostUsers != nil && !*s.HostUsers,
		at.Child("securityContext"))...)
}

// validateInit refuses fields that a non-sidecar init container cannot have.
func validateInit(c *v1.Container, at *field.Path) (errs field.ErrorList) {
	for _, f := range []setting{
		{"lifecycle", c.Lifecycle != nil},
		{"livenessProbe", c.LivenessProbe != nil},
		{"readinessProbe", c.ReadinessProbe != nil},
		{"startupProbe", c.StartupProbe != nil},
	} {
		if f.set {
			errs = append(errs,
				field.Forbidden(at.Child(f.name), "may not be set for init containers without restartPolicy=Always"))
		}
	}
	for i, p := range c.ResizePolicy {
		if p.RestartPolicy == v1.RestartContainer {
			errs = append(errs, field.Invalid(at.Child("resizePolicy").Index(i).Child("restartPolicy"), p.RestartPolicy,
				"must not be set to 'RestartContainer' for non-sidecar initContainers"))
		}
	}
	return errs
}

// validateResize checks the resize policies of a container.
func validateResize(
	policies []v1.ContainerResizePolicy, restart v1.RestartPolicy, at *field.Path,
) (errs field.ErrorList) {
	seen := map[v1.ResourceName]bool{}
	for i, p := range policies {
		at := at.Index(i)
		if seen[p.ResourceName] {
			errs = append(errs, field.Duplicate(at, p.ResourceName))
		}
		seen[p.ResourceName] = true
		errs = append(errs, oneOf(p.ResourceName, at.Child("resourceName"), v1.ResourceCPU, v1.ResourceMemory)...)
		errs = append(errs, oneOf(p.RestartPolicy, at.Child("restartPolicy"), v1.NotRequired, v1.RestartContainer)...)
		if restart == v1.RestartPolicyNever && p.RestartPolicy != v1.NotRequired {
			errs = append(errs, field.Invalid(at.Child("restartPolicy"), p.RestartPolicy,
				"must be 'NotRequired' when pod `restartPolicy` is 'Never'"))
		}
	}
	return errs
}

// validateRestart checks the restart rules of a container.
func validateRestart(c *v1.Container, at *field.Path) (errs field.ErrorList) {
	switch {
	case c.RestartPolicy == nil && len(c.RestartPolicyRules) > 0:
		errs = append(errs,
			field.Required(at.Child("restartPolicy"), "must specify restartPolicy when restart rules are used"))
	default:
		errs = append(errs, anyOf(c.RestartPolicy, at.Child("restartPolicy"), v1.ContainerRestartPolicyAlways,
			v1.ContainerRestartPolicyNever, v1.ContainerRestartPolicyOnFailure)...)
	}
	rules := at.Child("restartPolicyRules")
	if n := len(c.RestartPolicyRules); n > 20 {
		errs = append(errs, field.TooMany(rules, n, 20))
	}
	for i, r := range c.RestartPolicyRules {
		at := rules.Index(i)
		errs = append(errs, oneOf(r.Action, at.Child("action"), v1.ContainerRestartRuleActionRestart,
			v1.ContainerRestartRuleActionRestartAllContainers)...)
		if r.ExitCodes == nil {
			errs = append(errs, field.Required(at.Child("exitCodes"), "must be specified"))
			continue
		}
		at = at.Child("exitCodes")
		errs = append(errs, oneOf(r.ExitCodes.Operator, at.Child("operator"), v1.ContainerRestartRuleOnExitCodesOpIn,
			v1.ContainerRestartRuleOnExitCodesOpNotIn)...)
		if n := len(r.ExitCodes.Values); n > 255 {
			errs = append(errs, field.TooMany(at.Child("values"), n, 255))
		}
	}
	return errs
}

func validatePorts(c *v1.Container, hostNetwork bool, at *field.Path) (errs field.ErrorList) {
	names := map[string]bool{}
	for i, p := range c.Ports {
		at := at.Index(i)
		if p.Name != "" {
			errs = append(errs, invalid(at.Child("name"), p.Name, validation.IsValidPortName(p.Name))...)
			if names[p.Name] {
				errs = append(errs, field.Duplicate(at.Child("name"), p.Name))
			}
			names[p.Name] = true
		}
		if p.ContainerPort == 0 {
			errs = append(errs, field.Required(at.Child("containerPort"), ""))
		} else {
			errs = append(errs, invalid(at.Child("containerPort"), p.ContainerPort,
				validation.IsValidPortNum(int(p.ContainerPort)))...)
		}
		if p.HostPort != 0 {
			errs = append(errs,
				invalid(at.Child("hostPort"), p.HostPort, validation.IsValidPortNum(int(p.HostPort)))...)
		}
		errs = append(errs, oneOf(p.Protocol, at.Child("protocol"), v1.ProtocolSCTP, v1.ProtocolTCP, v1.ProtocolUDP)...)
	}
	return errs
}

// uniqueHostPorts refuses host ports that are used twice.
func uniqueHostPorts(containers []v1.Container, at *field.Path) (errs field.ErrorList) {
	seen := map[string]bool{}
	for i, c := range containers {
		for j, p := range c.Ports {
			if p.HostPort == 0 {
				continue
			}
			key := fmt.Sprintf("%s/%s/%d", p.Protocol, p.HostIP, p.HostPort)
			if seen[key] {
				errs = append(errs, field.Duplicate(at.Index(i).Child("ports").Index(j).Child("hostPort"), key))
			}
			seen[key] = true
		}
	}
	return errs
}

// validateHostPorts checks that with host network a port's hostPort equals its
// containerPort.
func validateHostPorts(s *v1.PodSpec, at *field.Path) (errs field.ErrorList) {
	if !s.HostNetwork {
		return nil
	}
	for i, c := range s.Containers {
		for j, p := range c.Ports {
			if p.HostPort != 0 && p.HostPort != p.ContainerPort {
				errs = append(errs,
					field.Invalid(at.Child("containers").Index(i).Child("ports").Index(j).Child("hostPort"), p.HostPort,
						"must match `containerPort` when `hostNetwork` is true"))
			}
		}
	}
	return errs
}

func count(set ...bool) int {
	n := 0
	for _, b := range set {
		if b {
			n++
		}
	}
	return n
}

// stopSignals are the signals that end a container on Linux.
var stopSignals = append(strings.Fields(`
	SIGABRT SIGALRM SIGBUS SIGCHLD SIGCLD SIGCONT SIGFPE SIGHUP SIGILL SIGINT SIGIO SIGIOT SIGKILL SIGPIPE SIGPOLL SIGPROF
	SIGPWR SIGQUIT SIGSEGV SIGSTKFLT SIGSTOP SIGSYS SIGTERM SIGTRAP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGUSR1 SIGUSR2 SIGVTALRM
	SIGWINCH SIGXCPU SIGXFSZ SIGRTMIN SIGRTMAX`), realTimeSignals()...)

func realTimeSignals() (out []string) {
	for i := 1; i <= 15; i++ {
		out = append(out, fmt.Sprintf("SIGRTMIN+%d", i))
	}
	for i := 1; i <= 14; i++ {
		out = append(out, fmt.Sprintf("SIGRTMAX-%d", i))
	}
	return out
}

func validateStopSignal(signal *v1.Signal, os *v1.PodOS, at *field.Path) field.ErrorList {
	switch {
	case signal == nil:
		return nil
	case os == nil:
		return field.ErrorList{field.Forbidden(at, "may not be set for containers with empty `spec.os.name`")}
	}
	known := stopSignals
	if os.Name == v1.Windows {
		known = []string{"SIGKILL", "SIGTERM"}
	}
	if !slices.Contains(known, string(*signal)) && (os.Name == v1.Windows || os.Name == v1.Linux) {
		return field.ErrorList{field.NotSupported(at, string(*signal), known)}
	}
	return nil
}
