package app

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/config/settings"
	"keelson/internal/host/machine"
	"keelson/internal/pods/podsync"
	"keelson/internal/runtime/image"
	"keelson/internal/runtime/image/gc"
	"keelson/internal/runtime/image/provider"
	"keelson/internal/runtime/image/record"
)

// pullers pull images and remove unused ones.
type pullers struct {
	image.ForPods
	gc      *gc.Collector
	records *record.Store // nil: every pod may use the images of the node
}

func newPullers(g *ground, r *runtimes, s *apiserver, o *objects) (*pullers, error) {
	cfg := settings.Images(g.cfg)
	cfg.Runtime, cfg.Events, cfg.OnChange = r.client, s.events, g.workers.Wake
	cfg.Registry, cfg.Log, cfg.Now = g.metrics, g.log, time.Now
	if s.client != nil {
		cfg.Secrets = o.store
	}
	if plugins, ok := settings.Credentials(g.cfg); ok {
		plugins.Registry, plugins.Log, plugins.Now = g.metrics, g.log, time.Now
		if s.client != nil {
			plugins.Tokens, plugins.Account = o.tokens, s.client.ServiceAccount
		}
		source, err := provider.New(plugins)
		if err != nil {
			return nil, err
		}
		cfg.Sources = append(cfg.Sources, source)
	}
	p := &pullers{}
	collect := settings.ImageGC(&g.cfg.Kubelet)
	if records, ok := settings.PullRecords(g.cfg); ok {
		records.Images = func(ctx context.Context) ([]*runtimeapi.Image, error) {
			resp, err := r.client.ListImages(ctx, &runtimeapi.ListImagesRequest{})
			return resp.GetImages(), err
		}
		records.Registry, records.Unusable = g.metrics, g.badFiles.Report
		records.Log, records.Now = g.log, time.Now
		var err error
		if p.records, err = record.New(records); err != nil {
			return nil, err
		}
		cfg.Records, collect.OnPass = p.records, p.records.Review
	}
	var err error
	if p.Manager, err = image.New(cfg); err != nil {
		return nil, err
	}
	if g.Enabled("RuntimeClassInImageCriApi") {
		p.Handler = s.classes.Handler
	}
	collect.Runtime, collect.Filesystem = r.client, machine.ReadFilesystem
	collect.InUse, collect.After = gc.InUse(r.client, r.observed, p.Manager.InUse), r.observed.Synced()
	collect.Events, collect.Registry, collect.Tracer = s.events, g.metrics, g.tracer()
	collect.Log, collect.Now = g.log, time.Now
	p.gc, err = gc.New(collect)
	return p, err
}

// images are pulled images as workers see them.
type images struct{ image.ForPods }

// Ensure pulls the image of a container, and those of the image volumes that it mounts. It never blocks.
func (i images) Ensure(p *v1.Pod, spec *v1.Container, attempt int) podsync.ImageResult {
	r, ready := i.Container(p, spec, attempt)
	if r.Err != nil {
		return podsync.ImageResult{Waiting: r.Err.Waiting, RetryAt: r.RetryAt}
	}
	return podsync.ImageResult{Ready: ready, Ref: r.Ref}
}
