package manifest

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateProbes checks the probes and hooks of a regular container or sidecar.
func validateProbes(c *v1.Container, s *v1.PodSpec, at *field.Path) (errs field.ErrorList) {
	errs = append(errs, validateProbe(c.LivenessProbe, at.Child("livenessProbe"), true)...)
	errs = append(errs, validateProbe(c.StartupProbe, at.Child("startupProbe"), true)...)
	errs = append(errs, validateProbe(c.ReadinessProbe, at.Child("readinessProbe"), false)...)
	if c.ReadinessProbe != nil && c.ReadinessProbe.TerminationGracePeriodSeconds != nil {
		errs = append(errs, field.Invalid(at.Child("readinessProbe", "terminationGracePeriodSeconds"),
			*c.ReadinessProbe.TerminationGracePeriodSeconds, "must not be set for readinessProbes"))
	}
	if l, at := c.Lifecycle, at.Child("lifecycle"); l != nil {
		errs = append(errs, validateHook(l.PostStart, at.Child("postStart"), s.TerminationGracePeriodSeconds)...)
		errs = append(errs, validateHook(l.PreStop, at.Child("preStop"), s.TerminationGracePeriodSeconds)...)
		errs = append(errs, validateStopSignal(l.StopSignal, s.OS, at.Child("stopSignal"))...)
	}
	return errs
}

func validateProbe(p *v1.Probe, at *field.Path, once bool) (errs field.ErrorList) {
	if p == nil {
		return nil
	}
	errs = append(errs, validateAction(p.Exec, p.HTTPGet, p.TCPSocket, at)...)
	if p.GRPC != nil {
		errs = append(errs,
			invalid(at.Child("grpc", "port"), p.GRPC.Port, validation.IsValidPortNum(int(p.GRPC.Port)))...)
	}
	errs = append(errs, handlerCount(at, p.Exec != nil, p.HTTPGet != nil, p.TCPSocket != nil, p.GRPC != nil)...)
	for _, n := range []struct {
		name  string
		value int32
	}{
		{"initialDelaySeconds", p.InitialDelaySeconds},
		{"timeoutSeconds", p.TimeoutSeconds},
		{"periodSeconds", p.PeriodSeconds},
		{"successThreshold", p.SuccessThreshold},
		{"failureThreshold", p.FailureThreshold},
	} {
		errs = append(errs, notNegative(at.Child(n.name), int64(n.value))...)
	}
	if p.TerminationGracePeriodSeconds != nil && *p.TerminationGracePeriodSeconds <= 0 {
		errs = append(errs,
			field.Invalid(at.Child("terminationGracePeriodSeconds"), *p.TerminationGracePeriodSeconds,
				"must be greater than 0"))
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
	errs = append(errs, validateAction(h.Exec, h.HTTPGet, h.TCPSocket, at)...)
	if h.Sleep != nil && grace != nil && (h.Sleep.Seconds < 0 || h.Sleep.Seconds > *grace) {
		errs = append(errs, field.Invalid(at.Child("sleep"), h.Sleep.Seconds,
			fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)", *grace)))
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

func validateAction(
	exec *v1.ExecAction, http *v1.HTTPGetAction, tcp *v1.TCPSocketAction, at *field.Path,
) (errs field.ErrorList) {
	if exec != nil && len(exec.Command) == 0 {
		errs = append(errs, field.Required(at.Child("exec", "command"), ""))
	}
	if http != nil {
		at := at.Child("httpGet")
		errs = append(errs, required(at.Child("path"), http.Path)...)
		errs = append(errs, validatePort(http.Port, at.Child("port"))...)
		if schemes := []v1.URIScheme{v1.URISchemeHTTP, v1.URISchemeHTTPS}; !slices.Contains(schemes, http.Scheme) {
			errs = append(errs, field.NotSupported(at.Child("scheme"), http.Scheme, schemes))
		}
		for i, h := range http.HTTPHeaders {
			errs = append(errs, invalid(at.Child("httpHeaders").Index(i).Child("name"), h.Name,
				validation.IsHTTPHeaderName(h.Name))...)
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
	return invalid(at, p.StrVal, validation.IsValidPortName(p.StrVal))
}
