package container

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/runtime/cri"
)

// RunSandbox creates the sandbox of the given attempt and returns its ID. The error's text is that
// of the event which the caller records.
func (r *Runner) RunSandbox(ctx context.Context, p *v1.Pod, attempt uint32) (id string, err error) {
	done := r.metrics.sandbox(p)
	defer func() { done(err) }()
	config, warnings, err := r.sandboxConfig(p, attempt)
	r.warn(p, warnings)
	if err != nil {
		return "", pod.ShowAs(cri.Text(err), fmt.Errorf("build sandbox configuration: %w", err))
	}
	if err := makeLogDir(r.logDir(p)); err != nil {
		return "", pod.ShowAs(err.Error(), fmt.Errorf("create log directory of the pod: %w", err))
	}
	handler, err := r.cfg.RuntimeHandler(p)
	if err != nil {
		return "", err
	}
	resp, err := inQueue(ctx, r.queue, runSandbox, rankOf(p, false), func() (*runtimeapi.RunPodSandboxResponse, error) {
		begin := r.cfg.Now()
		resp, err := r.cfg.Runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{
			Config:         config,
			RuntimeHandler: handler,
		})
		r.metrics.ran(handler, r.cfg.Now().Sub(begin), err)
		return resp, err
	})
	if err != nil {
		return "", err
	}
	return resp.GetPodSandboxId(), nil
}

// StopSandbox stops the sandbox, its network and all containers in it.
func (r *Runner) StopSandbox(ctx context.Context, id string) error {
	_, err := inQueue(ctx, r.queue, stopSandbox, stopRank, func() (*runtimeapi.StopPodSandboxResponse, error) {
		return r.cfg.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	})
	return ignoreNotFound(err)
}

// RemoveSandbox removes the sandbox and its containers. It must have been stopped first, or its
// network would leak.
func (r *Runner) RemoveSandbox(ctx context.Context, id string) error {
	_, err := inQueue(ctx, r.queue, removeSandbox, removeRank, func() (*runtimeapi.RemovePodSandboxResponse, error) {
		return r.cfg.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	})
	return ignoreNotFound(err)
}

// sandboxConfig gathers the input of the function sandboxConfig. Containers are created with the
// same configuration as their sandbox.
func (r *Runner) sandboxConfig(p *v1.Pod, attempt uint32) (*runtimeapi.PodSandboxConfig, []warning, error) {
	dns, warnings, err := r.dns(p)
	if err != nil {
		return nil, warnings, err
	}
	host, err := kernelHostname(p, podNames(p, r.cfg.DNS.ClusterDomain))
	if err != nil {
		return nil, warnings, err
	}
	userns, err := r.userNamespace(p)
	if err != nil {
		return nil, warnings, err
	}
	return sandboxConfig(sandboxInput{
		pod:          p,
		attempt:      attempt,
		hostname:     host,
		dns:          dns,
		logDir:       r.logDir(p),
		cgroupParent: r.cfg.CgroupParent(p),
		groups:       r.volumeGroups(p),
		userns:       userns,
		cpu:          r.cpuRules(),
		exclusive:    r.anyExclusive(p),
		oomGroup:     r.oomGroup(),
	}), warnings, nil
}

func (r *Runner) volumeGroups(p *v1.Pod) []int64 {
	if r.cfg.VolumeGroups == nil {
		return nil
	}
	return r.cfg.VolumeGroups(p)
}

func (r *Runner) warn(p *v1.Pod, warnings []warning) {
	for _, w := range warnings {
		text := w.message
		if w.node {
			r.cfg.Events.Node(v1.EventTypeWarning, w.reason, text)
			text = fmt.Sprintf("pod: %q. %s", describe(p), text)
		}
		r.cfg.Events.Pod(p, "", v1.EventTypeWarning, w.reason, text)
	}
}
