package device

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	deviceapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"keelson/internal/pods/pod"
)

// Contribute implements topology.Provider: it returns what the plugins have answered for the container. It is called
// for each start, and calls PreStartContainer of the plugins that require it.
func (p *Manager) Contribute(ctx context.Context, po *v1.Pod, c *v1.Container) (pod.Contribution, error) {
	if err := p.confirm(ctx, po, c); err != nil {
		return pod.Contribution{}, err
	}
	var answers []*deviceapi.ContainerAllocateResponse
	for _, g := range p.confirmedLocked(po, c) {
		if g.plugin != nil && g.plugin.preStart {
			if err := preStart(ctx, g.plugin, g.ids); err != nil {
				return pod.Contribution{}, err
			}
		}
		answers = append(answers, g.answer)
	}
	return contribution(answers), nil
}

// confirmed are devices of a container for which the plugin has answered.
type confirmed struct {
	ids    []string
	answer *deviceapi.ContainerAllocateResponse
	plugin *plugin // nil: not registered with this agent
}

func (p *Manager) confirmedLocked(po *v1.Pod, c *v1.Container) (out []confirmed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	cl := p.allocated[po.UID]
	if cl == nil {
		return nil
	}
	held := cl.byContainer[c.Name]
	for _, name := range slices.Sorted(maps.Keys(held)) {
		g := confirmed{ids: held[name].ids, answer: held[name].answer}
		if r := p.resources[name]; r != nil {
			g.plugin = r.plugin
		}
		if g.answer != nil {
			out = append(out, g)
		}
	}
	return out
}

// preStart calls PreStartContainer.
func preStart(ctx context.Context, pl *plugin, ids []string) error {
	ctx, cancel := context.WithTimeout(ctx, preStartLimit)
	defer cancel()
	began := time.Now()
	if _, err := pl.client.PreStartContainer(ctx, &deviceapi.PreStartContainerRequest{DevicesIds: ids}); err != nil {
		if status.Code(err) == codes.DeadlineExceeded && time.Since(began) > preStartLimit-time.Second {
			// The plugin's side of the connection may time out first. Its error then has another text.
			err = status.FromContextError(context.DeadlineExceeded).Err()
		}
		err = fmt.Errorf("device plugin PreStartContainer rpc failed with err: %w", err)
		return pod.ShowAs(err.Error(), err) // an error of the plugin, not of the runtime
	}
	return nil
}

// contribution merges the answers of the plugins in the order of their resources. On conflicts the first one wins.
func contribution(answers []*deviceapi.ContainerAllocateResponse) pod.Contribution {
	var out pod.Contribution
	env, annotations, paths, devices, cdi := map[string]bool{}, map[string]string{}, map[string]bool{}, map[string]bool{},
		map[string]bool{}
	first := func(seen map[string]bool, key string) bool {
		if seen[key] {
			return false
		}
		seen[key] = true
		return true
	}
	for _, a := range answers {
		for _, k := range slices.Sorted(maps.Keys(a.Envs)) {
			if first(env, k) {
				out.Env = append(out.Env, pod.EnvVar{Name: k, Value: a.Envs[k]})
			}
		}
		for _, d := range a.Devices {
			if first(devices, d.ContainerPath) {
				out.Devices = append(out.Devices, pod.Device{
					HostPath:      d.HostPath,
					ContainerPath: d.ContainerPath,
					Permissions:   d.Permissions,
				})
			}
		}
		for _, m := range a.Mounts {
			if first(paths, m.ContainerPath) {
				// SELinux labels of these mounts are left to the plugin.
				out.Mounts = append(out.Mounts, pod.Mount{
					HostPath:      m.HostPath,
					ContainerPath: m.ContainerPath,
					ReadOnly:      m.ReadOnly,
				})
			}
		}
		for k, v := range a.Annotations {
			if _, there := annotations[k]; !there {
				annotations[k] = v
			}
		}
		for _, d := range a.CdiDevices {
			if first(cdi, d.Name) {
				out.CDIDevices = append(out.CDIDevices, d.Name)
			}
		}
	}
	if len(annotations) > 0 {
		out.Annotations = annotations
	}
	return out
}
