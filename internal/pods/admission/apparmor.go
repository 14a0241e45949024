package admission

import (
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// annotationAppArmor is the prefix of the former annotation for a profile; the container's
// name follows.
const annotationAppArmor = "container.apparmor.security.beta.kubernetes.io/"

// appArmor refuses pods with a profile that the host cannot enforce. A pod that has run
// was admitted before.
func (r Rules) appArmor(in Input) *pod.Rejection {
	p := in.Pod
	if p.Status.Phase != v1.PodPending && p.Status.Phase != "" {
		return nil
	}
	profiles := appArmorProfiles(p)
	if len(profiles) == 0 {
		return nil
	}
	err := r.AppArmor
	for _, profile := range profiles {
		if err == nil && profile.Type == v1.AppArmorProfileTypeLocalhost &&
			(profile.LocalhostProfile == nil || strings.TrimSpace(*profile.LocalhostProfile) == "") {
			err = errors.New("localhost profile name is empty")
		}
	}
	if err == nil {
		return nil
	}
	return &pod.Rejection{Reason: ReasonAppArmor, Message: fmt.Sprintf("Cannot enforce AppArmor: %v", err)}
}

// appArmorProfiles returns the profiles of the pod, except Unconfined.
func appArmorProfiles(p *v1.Pod) []v1.AppArmorProfile {
	var out []v1.AppArmorProfile
	add := func(a *v1.AppArmorProfile) {
		if a != nil && a.Type != v1.AppArmorProfileTypeUnconfined {
			out = append(out, *a)
		}
	}
	if p.Spec.SecurityContext != nil {
		add(p.Spec.SecurityContext.AppArmorProfile)
	}
	for _, c := range pod.Containers(p) {
		if c.SecurityContext != nil {
			add(c.SecurityContext.AppArmorProfile)
		}
		switch text := p.Annotations[annotationAppArmor+c.Name]; {
		case text == "" || text == "unconfined":
		case strings.HasPrefix(text, "localhost/"):
			name := strings.TrimPrefix(text, "localhost/")
			add(&v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name})
		default:
			add(&v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault})
		}
	}
	return out
}
