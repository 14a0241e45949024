package app

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"

	"keelson/internal/api/client"
	"keelson/internal/api/identity"
	"keelson/internal/api/watch"
	"keelson/internal/config/settings"
	"keelson/internal/pods/pod"
)

// events records events of pods, and of other objects with annotations.
type events interface {
	pod.Events
	Annotated(p *v1.Pod, annotations map[string]string, eventType, reason, message string)
}

// apiserver is the API server, if there is one. All but events are nil on a standalone node.
type apiserver struct {
	client      *client.Client
	certificate *identity.Rotator // nil: the client certificate is not renewed
	recorder    *client.Events
	events      events
	services    *watch.Services
	classes     *watch.RuntimeClasses
}

// newAPIServer makes a client for the API server, if there is one. It waits for a certificate where the node has none.
func newAPIServer(ctx context.Context, g *ground) (*apiserver, error) {
	if g.cfg.Standalone() {
		return &apiserver{events: client.LogEvents{Log: g.log}}, nil
	}
	k, f := &g.cfg.Kubelet, &g.cfg.Flags
	cfg := settings.Client(g.cfg)
	if g.spans != nil {
		cfg.Wrap = g.spans.Transport
	}
	s := &apiserver{}
	var err error
	if g.links.API != nil {
		s.client, err = client.NewFor(g.links.API, cfg)
	} else {
		s.client, s.certificate, err = identity.NewClient(ctx, identity.ClientConfig{
			Client:              cfg,
			Node:                g.cfg.NodeName,
			CertDir:             f.CertDir,
			Kubeconfig:          f.Kubeconfig,
			BootstrapKubeconfig: f.BootstrapKubeconfig,
			Rotate:              k.RotateCertificates,
			Unusable:            g.badFiles.Report,
			Registry:            g.metrics,
			Log:                 g.log,
		})
	}
	if err != nil {
		return nil, err
	}
	s.recorder = client.NewEvents(client.EventsConfig{Client: s.client, Node: g.cfg.NodeName, Log: g.log})
	s.events = s.recorder
	s.services = watch.NewServices(s.client.Services.ListWatch("", fields.Everything()))
	s.classes = watch.NewRuntimeClasses(s.client.RuntimeClasses.ListWatch("", fields.Everything()))
	return s, nil
}

const (
	// EventSetupFailed is the reason of the event about an agent that cannot start.
	EventSetupFailed = "KubeletSetupFailed"
	// setupEventTimeout is how long an agent that cannot start tries to send it.
	setupEventTimeout = 5 * time.Second
)

// reportSetupFailure sends an event with the reason why the agent cannot start. s is nil if it failed before there was
// a client.
func reportSetupFailure(ctx context.Context, g *ground, s *apiserver, why error) {
	if g.cfg.Standalone() {
		return
	}
	if s == nil {
		if g.cfg.Kubelet.RotateCertificates || g.cfg.Flags.BootstrapKubeconfig != "" {
			return // it may have no certificate yet
		}
		var err error
		if s, err = newAPIServer(ctx, g); err != nil {
			return // the log has the reason
		}
	}
	ctx, cancel := context.WithTimeout(ctx, setupEventTimeout)
	defer cancel()
	event := client.NodeEvent(g.cfg.NodeName, v1.EventTypeWarning, EventSetupFailed, why.Error(), time.Now())
	if err := s.client.CreateEvent(ctx, event); err != nil {
		g.log.Warn("failed to send event about failed start", "err", err)
	}
}
