package desired

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
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
		errs = append(errs, validateContainer(c, kind, s, volumes, at)...)
	}
	for i := range s.InitContainers {
		check(pod.InitKind(&s.InitContainers[i]), &s.InitContainers[i], at.Child("initContainers").Index(i))
	}
	for i := range s.Containers {
		check(pod.Regular, &s.Containers[i], at.Child("containers").Index(i))
	}
	return append(errs, validateHostPorts(s, at)...)
}

func validateContainer(c *v1.Container, kind pod.Kind, s *v1.PodSpec, volumes map[string]*v1.Volume, at *field.Path) (errs field.ErrorList) {
	if c.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	} else {
		errs = append(errs, invalid(at.Child("name"), c.Name, validation.IsDNS1123Label(c.Name))...)
	}
	switch {
	case c.Image == "":
		errs = append(errs, field.Required(at.Child("image"), ""))
	case strings.TrimSpace(c.Image) != c.Image:
		errs = append(errs, field.Invalid(at.Child("image"), c.Image, "must not have leading or trailing whitespace"))
	}
	errs = append(errs, oneOf(c.ImagePullPolicy, at.Child("imagePullPolicy"), v1.PullAlways, v1.PullIfNotPresent, v1.PullNever)...)
	errs = append(errs, oneOf(c.TerminationMessagePolicy, at.Child("terminationMessagePolicy"), v1.TerminationMessageReadFile, v1.TerminationMessageFallbackToLogsOnError)...)
	errs = append(errs, validatePorts(c.Ports, at.Child("ports"))...)
	errs = append(errs, validateEnv(c.Env, volumes, at.Child("env"))...)
	errs = append(errs, validateMounts(c, volumes, at)...)
	errs = append(errs, validateResources(c.Resources, at.Child("resources"))...)
	for i, claim := range c.Resources.Claims {
		if !slices.ContainsFunc(s.ResourceClaims, func(r v1.PodResourceClaim) bool { return r.Name == claim.Name }) {
			errs = append(errs, field.NotFound(at.Child("resources", "claims").Index(i), claim.Name))
		}
	}
	errs = append(errs, validateRestart(c, kind, s, at)...)
	errs = append(errs, validateSecurity(c.SecurityContext, at.Child("securityContext"))...)
	grace := s.TerminationGracePeriodSeconds
	if kind == pod.Init {
		for name, set := range map[string]bool{"lifecycle": c.Lifecycle != nil, "livenessProbe": c.LivenessProbe != nil, "readinessProbe": c.ReadinessProbe != nil, "startupProbe": c.StartupProbe != nil} {
			if set {
				errs = append(errs, field.Forbidden(at.Child(name), "may not be set for init containers without restartPolicy=Always"))
			}
		}
		return errs
	}
	errs = append(errs, validateProbe(c.LivenessProbe, at.Child("livenessProbe"), true)...)
	errs = append(errs, validateProbe(c.StartupProbe, at.Child("startupProbe"), true)...)
	errs = append(errs, validateProbe(c.ReadinessProbe, at.Child("readinessProbe"), false)...)
	if c.ReadinessProbe != nil && c.ReadinessProbe.TerminationGracePeriodSeconds != nil {
		errs = append(errs, field.Invalid(at.Child("readinessProbe", "terminationGracePeriodSeconds"), *c.ReadinessProbe.TerminationGracePeriodSeconds, "must not be set for readinessProbes"))
	}
	if l := c.Lifecycle; l != nil {
		errs = append(errs, validateHook(l.PostStart, at.Child("lifecycle", "postStart"), grace)...)
		errs = append(errs, validateHook(l.PreStop, at.Child("lifecycle", "preStop"), grace)...)
	}
	return errs
}

func validateRestart(c *v1.Container, kind pod.Kind, s *v1.PodSpec, at *field.Path) (errs field.ErrorList) {
	if c.RestartPolicy != nil {
		errs = append(errs, oneOf(*c.RestartPolicy, at.Child("restartPolicy"), v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyNever, v1.ContainerRestartPolicyOnFailure)...)
	}
	rules := at.Child("restartPolicyRules")
	if len(c.RestartPolicyRules) > 0 && c.RestartPolicy == nil {
		errs = append(errs, field.Required(at.Child("restartPolicy"), "must specify restartPolicy when restart rules are used"))
	}
	if len(c.RestartPolicyRules) > 0 && kind == pod.Sidecar {
		errs = append(errs, field.Forbidden(rules, "restartPolicyRules are not allowed for init containers with restart policy Always"))
	}
	if len(c.RestartPolicyRules) > 20 {
		errs = append(errs, field.TooMany(rules, len(c.RestartPolicyRules), 20))
	}
	for i, r := range c.RestartPolicyRules {
		at := rules.Index(i)
		errs = append(errs, oneOf(r.Action, at.Child("action"), v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers)...)
		if r.ExitCodes == nil {
			errs = append(errs, field.Required(at.Child("exitCodes"), "must be specified"))
			continue
		}
		errs = append(errs, oneOf(r.ExitCodes.Operator, at.Child("exitCodes", "operator"), v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn)...)
	}
	return errs
}

func validatePorts(ports []v1.ContainerPort, at *field.Path) (errs field.ErrorList) {
	names := map[string]bool{}
	for i, p := range ports {
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
			errs = append(errs, invalid(at.Child("containerPort"), p.ContainerPort, validation.IsValidPortNum(int(p.ContainerPort)))...)
		}
		if p.HostPort != 0 {
			errs = append(errs, invalid(at.Child("hostPort"), p.HostPort, validation.IsValidPortNum(int(p.HostPort)))...)
		}
		errs = append(errs, oneOf(p.Protocol, at.Child("protocol"), v1.ProtocolSCTP, v1.ProtocolTCP, v1.ProtocolUDP)...)
	}
	return errs
}

// validateHostPorts finds ports of the node that the pod asks for twice.
func validateHostPorts(s *v1.PodSpec, at *field.Path) (errs field.ErrorList) {
	seen := map[string]bool{}
	for i, c := range s.Containers {
		for j, p := range c.Ports {
			at := at.Child("containers").Index(i).Child("ports").Index(j).Child("hostPort")
			if s.HostNetwork && p.HostPort != p.ContainerPort {
				errs = append(errs, field.Invalid(at, p.HostPort, "must match `containerPort` when `hostNetwork` is true"))
			}
			if p.HostPort == 0 {
				continue
			}
			key := fmt.Sprintf("%s/%s/%d", p.Protocol, p.HostIP, p.HostPort)
			if seen[key] {
				errs = append(errs, field.Duplicate(at, key))
			}
			seen[key] = true
		}
	}
	return errs
}

// envFields are what a variable may be filled with from the pod itself.
var envFields = []string{"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"}

func validateEnv(env []v1.EnvVar, volumes map[string]*v1.Volume, at *field.Path) (errs field.ErrorList) {
	for i, e := range env {
		at := at.Index(i)
		if e.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		} else {
			errs = append(errs, invalid(at.Child("name"), e.Name, validation.IsRelaxedEnvVarName(e.Name))...)
		}
		if e.ValueFrom == nil {
			continue
		}
		at, from := at.Child("valueFrom"), e.ValueFrom
		if n := count(from.FieldRef != nil, from.ResourceFieldRef != nil, from.ConfigMapKeyRef != nil, from.SecretKeyRef != nil, from.FileKeyRef != nil); n == 0 {
			errs = append(errs, field.Invalid(at, "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"))
		} else if n > 1 {
			errs = append(errs, field.Invalid(at, "", "may not have more than one field specified at a time"))
		}
		if e.Value != "" {
			errs = append(errs, field.Invalid(at, "", "may not be specified when `value` is not empty"))
		}
		if from.FieldRef != nil {
			errs = append(errs, validateFieldRef(from.FieldRef, envFields, at.Child("fieldRef"))...)
		}
		if r := from.ResourceFieldRef; r != nil {
			errs = append(errs, validateResourceRef(r.Resource, at.Child("resourceFieldRef", "resource"))...)
		}
		if f := from.FileKeyRef; f != nil {
			at := at.Child("fileKeyRef")
			if f.Key == "" {
				errs = append(errs, field.Required(at.Child("key"), ""))
			}
			errs = append(errs, validateRelative(f.Path, at.Child("path"))...)
			if v := volumes[f.VolumeName]; v == nil {
				errs = append(errs, field.NotFound(at.Child("volumeName"), f.VolumeName))
			} else if v.EmptyDir == nil {
				errs = append(errs, field.Invalid(at.Child("volumeName"), f.VolumeName, "must be an emptyDir volume"))
			}
		}
	}
	return errs
}

// validateFieldRef checks a reference to the pod's own fields; labels and
// annotations may be asked for one by one.
func validateFieldRef(r *v1.ObjectFieldSelector, allowed []string, at *field.Path) field.ErrorList {
	switch {
	case r.APIVersion != "v1":
		return field.ErrorList{field.Invalid(at.Child("apiVersion"), r.APIVersion, "must be v1")}
	case r.FieldPath == "":
		return field.ErrorList{field.Required(at.Child("fieldPath"), "")}
	}
	for _, m := range []string{"metadata.labels", "metadata.annotations"} {
		if key, ok := strings.CutPrefix(r.FieldPath, m+"['"); ok && strings.HasSuffix(key, "']") {
			return invalid(at, r.FieldPath, validation.IsQualifiedName(strings.ToLower(strings.TrimSuffix(key, "']"))))
		}
	}
	if !slices.Contains(allowed, r.FieldPath) {
		return field.ErrorList{field.NotSupported(at.Child("fieldPath"), r.FieldPath, allowed)}
	}
	return nil
}

var resourceRefs = []string{"limits.cpu", "limits.memory", "limits.ephemeral-storage", "requests.cpu", "requests.memory", "requests.ephemeral-storage"}

func validateResourceRef(name string, at *field.Path) field.ErrorList {
	switch {
	case name == "":
		return field.ErrorList{field.Required(at, "")}
	case slices.Contains(resourceRefs, name), strings.HasPrefix(name, "limits.hugepages-"), strings.HasPrefix(name, "requests.hugepages-"):
		return nil
	}
	return field.ErrorList{field.NotSupported(at, name, resourceRefs)}
}

func validateMounts(c *v1.Container, volumes map[string]*v1.Volume, at *field.Path) (errs field.ErrorList) {
	paths := map[string]bool{}
	for i, m := range c.VolumeMounts {
		at := at.Child("volumeMounts").Index(i)
		if m.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		} else if volumes[m.Name] == nil {
			errs = append(errs, field.NotFound(at.Child("name"), m.Name))
		}
		switch {
		case m.MountPath == "":
			errs = append(errs, field.Required(at.Child("mountPath"), ""))
		case paths[m.MountPath]:
			errs = append(errs, field.Invalid(at.Child("mountPath"), m.MountPath, "must be unique"))
		}
		paths[m.MountPath] = true
		if m.SubPath != "" && m.SubPathExpr != "" {
			errs = append(errs, field.Invalid(at.Child("subPathExpr"), m.SubPathExpr, "subPathExpr and subPath are mutually exclusive"))
		}
		errs = append(errs, validateBelow(m.SubPath, at.Child("subPath"))...)
		errs = append(errs, validateBelow(m.SubPathExpr, at.Child("subPathExpr"))...)
		errs = append(errs, validatePropagation(m, c, at)...)
	}
	for i, d := range c.VolumeDevices {
		at := at.Child("volumeDevices").Index(i)
		if volumes[d.Name] == nil {
			errs = append(errs, field.NotFound(at.Child("name"), d.Name))
		}
		if d.DevicePath == "" {
			errs = append(errs, field.Required(at.Child("devicePath"), ""))
		}
	}
	return errs
}

func validatePropagation(m v1.VolumeMount, c *v1.Container, at *field.Path) (errs field.ErrorList) {
	mode := v1.MountPropagationNone
	if m.MountPropagation != nil {
		mode = *m.MountPropagation
		errs = oneOf(mode, at.Child("mountPropagation"), v1.MountPropagationBidirectional, v1.MountPropagationHostToContainer, v1.MountPropagationNone)
	}
	privileged := c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
	if mode == v1.MountPropagationBidirectional && !privileged {
		errs = append(errs, field.Forbidden(at.Child("mountPropagation"), "Bidirectional mount propagation is available only to privileged containers"))
	}
	if r := m.RecursiveReadOnly; r != nil && *r != v1.RecursiveReadOnlyDisabled {
		errs = append(errs, oneOf(*r, at.Child("recursiveReadOnly"), v1.RecursiveReadOnlyDisabled, v1.RecursiveReadOnlyIfPossible, v1.RecursiveReadOnlyEnabled)...)
		if !m.ReadOnly {
			errs = append(errs, field.Forbidden(at.Child("recursiveReadOnly"), "may only be specified when readOnly is true"))
		}
		if mode != v1.MountPropagationNone {
			errs = append(errs, field.Forbidden(at.Child("recursiveReadOnly"), "may only be specified when mountPropagation is None or not specified"))
		}
	}
	return errs
}

// validateResources checks amounts, and that no request is above its limit.
func validateResources(r v1.ResourceRequirements, at *field.Path) (errs field.ErrorList) {
	for list, amounts := range map[string]v1.ResourceList{"limits": r.Limits, "requests": r.Requests} {
		for _, name := range slices.Sorted(maps.Keys(amounts)) {
			at, q := at.Child(list).Key(string(name)), amounts[name]
			if q.Sign() < 0 {
				errs = append(errs, field.Invalid(at, q.String(), "must be greater than or equal to 0"))
			}
			errs = append(errs, invalid(at, name, validation.IsQualifiedName(string(name)))...)
			if !strings.Contains(string(name), "/") && !nativeResource(name) {
				errs = append(errs, field.Invalid(at, name, "must be a standard resource type or fully qualified"))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		req := r.Requests[name]
		limit, limited := r.Limits[name]
		switch at := at.Child("requests"); {
		case limited && exact(name) && req.Cmp(limit) != 0:
			errs = append(errs, field.Invalid(at, req.String(), fmt.Sprintf("must be equal to %s limit of %s", name, limit.String())))
		case limited && req.Cmp(limit) > 0:
			errs = append(errs, field.Invalid(at, req.String(), fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String())))
		case !limited && exact(name):
			errs = append(errs, field.Required(at.Child("limits"), "Limit must be set for non overcommitable resources"))
		}
	}
	return errs
}

func nativeResource(name v1.ResourceName) bool {
	return name == v1.ResourceCPU || name == v1.ResourceMemory || name == v1.ResourceEphemeralStorage || strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// exact resources are given whole and to one: request and limit are the same.
func exact(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) || !nativeResource(name)
}

func validateProbe(p *v1.Probe, at *field.Path, once bool) (errs field.ErrorList) {
	if p == nil {
		return nil
	}
	errs = validateAction(p.Exec, p.HTTPGet, p.TCPSocket, at)
	if p.GRPC != nil {
		errs = append(errs, invalid(at.Child("grpc", "port"), p.GRPC.Port, validation.IsValidPortNum(int(p.GRPC.Port)))...)
	}
	errs = append(errs, handlerCount(at, p.Exec != nil, p.HTTPGet != nil, p.TCPSocket != nil, p.GRPC != nil)...)
	for name, v := range map[string]int32{"initialDelaySeconds": p.InitialDelaySeconds, "timeoutSeconds": p.TimeoutSeconds, "periodSeconds": p.PeriodSeconds, "successThreshold": p.SuccessThreshold, "failureThreshold": p.FailureThreshold} {
		errs = append(errs, notNegative(at.Child(name), int64(v))...)
	}
	if p.TerminationGracePeriodSeconds != nil && *p.TerminationGracePeriodSeconds <= 0 {
		errs = append(errs, field.Invalid(at.Child("terminationGracePeriodSeconds"), *p.TerminationGracePeriodSeconds, "must be greater than 0"))
	}
	if once && p.SuccessThreshold != 1 {
		errs = append(errs, field.Invalid(at.Child("successThreshold"), p.SuccessThreshold, "must be 1"))
	}
	return errs
}

func validateHook(h *v1.LifecycleHandler, at *field.Path, grace *int64) (errs field.ErrorList) {
	if h == nil {
		return nil
	}
	errs = validateAction(h.Exec, h.HTTPGet, h.TCPSocket, at)
	if h.Sleep != nil && grace != nil && (h.Sleep.Seconds < 0 || h.Sleep.Seconds > *grace) {
		errs = append(errs, field.Invalid(at.Child("sleep"), h.Sleep.Seconds, fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)", *grace)))
	}
	return append(errs, handlerCount(at, h.Exec != nil, h.HTTPGet != nil, h.TCPSocket != nil, h.Sleep != nil)...)
}

func handlerCount(at *field.Path, set ...bool) field.ErrorList {
	switch n := count(set...); {
	case n == 0:
		return field.ErrorList{field.Required(at, "must specify a handler type")}
	case n > 1:
		return field.ErrorList{field.Forbidden(at, "may not specify more than 1 handler type")}
	}
	return nil
}

func validateAction(exec *v1.ExecAction, http *v1.HTTPGetAction, tcp *v1.TCPSocketAction, at *field.Path) (errs field.ErrorList) {
	if exec != nil && len(exec.Command) == 0 {
		errs = append(errs, field.Required(at.Child("exec", "command"), ""))
	}
	if http != nil {
		at := at.Child("httpGet")
		if http.Path == "" {
			errs = append(errs, field.Required(at.Child("path"), ""))
		}
		errs = append(errs, validatePort(http.Port, at.Child("port"))...)
		errs = append(errs, oneOf(http.Scheme, at.Child("scheme"), v1.URISchemeHTTP, v1.URISchemeHTTPS)...)
		for i, h := range http.HTTPHeaders {
			errs = append(errs, invalid(at.Child("httpHeaders").Index(i).Child("name"), h.Name, validation.IsHTTPHeaderName(h.Name))...)
		}
	}
	if tcp != nil {
		errs = append(errs, validatePort(tcp.Port, at.Child("tcpSocket", "port"))...)
	}
	return errs
}

func validatePort(p intstr.IntOrString, at *field.Path) field.ErrorList {
	if p.Type == intstr.Int {
		return invalid(at, p.IntValue(), validation.IsValidPortNum(p.IntValue()))
	}
	if _, err := strconv.Atoi(p.StrVal); err == nil {
		return field.ErrorList{field.Invalid(at, p.StrVal, "must be a number or a port name, not a number in quotes")}
	}
	return invalid(at, p.StrVal, validation.IsValidPortName(p.StrVal))
}

func validateSecurity(sc *v1.SecurityContext, at *field.Path) (errs field.ErrorList) {
	if sc == nil {
		return nil
	}
	errs = append(errs, validateIDs(sc.RunAsUser, sc.RunAsGroup, at)...)
	errs = append(errs, validateSeccomp(sc.SeccompProfile, at.Child("seccompProfile"))...)
	if sc.ProcMount != nil {
		errs = append(errs, oneOf(*sc.ProcMount, at.Child("procMount"), v1.DefaultProcMount, v1.UnmaskedProcMount)...)
	}
	if sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation {
		if sc.Privileged != nil && *sc.Privileged {
			errs = append(errs, field.Invalid(at, "", "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"))
		}
		if sc.Capabilities != nil && slices.Contains(sc.Capabilities.Add, "CAP_SYS_ADMIN") {
			errs = append(errs, field.Invalid(at, "", "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"))
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
