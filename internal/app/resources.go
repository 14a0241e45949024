package app

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/admission"
	"keelson/internal/resources/resource"
	"keelson/internal/resources/topology"
)

// buildResources builds those who hand out what only one container can have.
func (a *agent) buildResources() error {
	var providers []resource.Provider
	a.resources = resource.New(resource.Config{
		Rules:     topology.Rules{Policy: topology.None},
		Scope:     a.cfg.Kubelet.TopologyManagerScope,
		Providers: providers, Log: a.log, Now: time.Now,
	})
	a.metrics.MustRegister(a.resources)
	return nil
}

// reserveFor has what the pod asks for reserved, or says why it cannot be had.
func (a *agent) reserveFor(p *v1.Pod) *admission.Rejection {
	if no := a.resources.Admit(p); no != nil {
		return &admission.Rejection{Reason: no.Reason, Message: no.Message}
	}
	return nil
}

// takeOver has what a pod asks for reserved that runs already. One that has ended
// or is to end needs nothing new.
func (a *agent) takeOver(p *v1.Pod) {
	if have, read := a.observed.Get(p.UID); read && have.Live() && admission.Admissible(p) {
		a.resources.TakeOver(p)
	}
}
