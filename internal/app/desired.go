package app

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"

	"keelson/internal/api/client"
	"keelson/internal/config/settings"
	"keelson/internal/pods/desired"
	"keelson/internal/pods/podsync/handlers"
	"keelson/internal/pods/podsync/judge"
	"keelson/internal/pods/status"
)

// statusWorkers bounds status writes under way at once; the client's own rate bounds how many there are in a second.
const statusWorkers = 16

// newDesired creates the store of desired pods, which collects those of all sources.
func newDesired(g *ground, s *apiserver, n *nodes) *desired.Store {
	cfg := desired.Config{
		NodeName:      g.cfg.NodeName,
		Sources:       newSources(g, s, n),
		Events:        s.events,
		OnChange:      g.workers.Desired,
		OnUpdate:      judge.ReportLack(n.features.Version, n.declared, s.events),
		OnForced:      g.workers.Force,
		OnSourceReady: g.workers.WakeAll,
		Log:           g.log,
	}
	if s.client != nil {
		cfg.Mirrors = &desired.MirrorConfig{
			API:   s.client.Pods,
			Busy:  g.workers.Holds,
			Older: g.workers.HoldsOlder,
			Node: func() (*v1.Node, bool) {
				node := n.Node.Node()
				return node, node.UID != ""
			},
		}
	}
	return desired.New(cfg)
}

// newSources creates the sources of pods: static manifests, a URL, the API server.
func newSources(g *ground, s *apiserver, n *nodes) []desired.Source {
	var sources []desired.Source
	if cfg, ok := settings.Files(g.cfg); ok {
		cfg.Watch, cfg.Changes = !g.links.NoFileWatch, g.links.ManifestChanges
		cfg.Events, cfg.Log = s.events, g.log
		sources = append(sources, desired.NewFiles(cfg))
	}
	if cfg, ok := settings.URL(g.cfg); ok {
		cfg.Log = g.log
		sources = append(sources, desired.NewURL(cfg))
	}
	if s.client != nil {
		own := fields.OneTermEqualSelector("spec.nodeName", g.cfg.NodeName)
		sources = append(sources, desired.NewAPI(desired.APIConfig{
			Pods:  s.client.Pods.ListWatch("", own),
			After: n.Registered(),
			Log:   g.log,
		}))
	}
	return sources
}

// newStatuses creates the writer of pod statuses to the API server.
func newStatuses(g *ground, r *runtimes, s *apiserver, able handlers.Handlers) *status.Writer {
	shown := settings.StatusNode(g.cfg, r.identity)
	shown.RecursiveReadOnly = able.ShownRecursive
	cfg := status.Config{
		Node:     shown,
		Parallel: statusWorkers,
		OnChange: g.workers.Published,
		Events:   s.events,
		Log:      g.log,
		Now:      time.Now,
	}
	if s.client != nil {
		cfg.API = client.PodStatuses{Pods: s.client.Pods}
	}
	w := status.NewWriter(cfg)
	g.metrics.MustRegister(w)
	return w
}
