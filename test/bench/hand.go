package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// template has the configurations that a kubelet sent to the runtime for one pod. The same are sent by hand.
type template struct {
	sandbox   *cri.PodSandboxConfig
	container *cri.ContainerConfig
	dir       string // folder for the mounts and logs of the pods by hand
}

// capture reads the configurations of a running pod from the runtime. It copies the mounts of its container, because
// the originals are removed with the pod.
func capture(ctx context.Context, rt cri.RuntimeServiceClient, uid, dir string) (*template, error) {
	own := map[string]string{"io.kubernetes.pod.uid": uid}
	sandboxes, err := rt.ListPodSandbox(ctx,
		&cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{LabelSelector: own}})
	if err != nil {
		return nil, fmt.Errorf("capture pod %s: %w", uid, err)
	}
	containers, err := rt.ListContainers(ctx,
		&cri.ListContainersRequest{Filter: &cri.ContainerFilter{LabelSelector: own}})
	if err != nil {
		return nil, fmt.Errorf("capture pod %s: %w", uid, err)
	}
	if len(sandboxes.Items) != 1 || len(containers.Containers) != 1 {
		return nil, fmt.Errorf("capture pod %s: %d sandboxes and %d containers, want one of each", uid,
			len(sandboxes.Items), len(containers.Containers))
	}
	s, err := rt.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: sandboxes.Items[0].Id, Verbose: true})
	if err != nil {
		return nil, fmt.Errorf("capture pod %s: %w", uid, err)
	}
	c, err := rt.ContainerStatus(ctx, &cri.ContainerStatusRequest{
		ContainerId: containers.Containers[0].Id,
		Verbose:     true,
	})
	if err != nil {
		return nil, fmt.Errorf("capture pod %s: %w", uid, err)
	}
	t := &template{sandbox: &cri.PodSandboxConfig{}, container: &cri.ContainerConfig{}, dir: dir}
	if err := errors.Join(reported(s.Info, t.sandbox), reported(c.Info, t.container)); err != nil {
		return nil, fmt.Errorf("capture pod %s: %w", uid, err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "mounts"), 0o755); err != nil {
		return nil, err
	}
	for i, m := range t.container.Mounts {
		to := filepath.Join(dir, "mounts", fmt.Sprint(i))
		if logged, err := exec.CommandContext(ctx, "cp", "-a", m.HostPath, to).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("copy mount %s: %w: %s", m.HostPath, err, logged)
		}
		m.HostPath = to
	}
	return t, nil
}

// reported reads a configuration from a verbose status.
func reported(info map[string]string, config proto.Message) error {
	verbose := struct{ Config any }{config}
	if err := json.Unmarshal([]byte(info["info"]), &verbose); err != nil {
		return fmt.Errorf("read verbose status: %w", err)
	}
	return nil
}

// handPod is a pod made by hand.
type handPod struct{ sandbox, container string }

// start makes a pod with only the necessary calls, one after the other, and returns how long they took.
func (t *template) start(
	ctx context.Context, rt cri.RuntimeServiceClient, cgroup string, n int,
) (handPod, time.Duration, error) {
	name := fmt.Sprintf("hand-%04d", n)
	sandbox, container := proto.Clone(t.sandbox).(*cri.PodSandboxConfig),
		proto.Clone(t.container).(*cri.ContainerConfig)
	sandbox.Metadata.Name, sandbox.Metadata.Uid = name, name
	sandbox.Hostname = name
	// Without the labels of a kubelet, because a kubelet would treat the pod as its own.
	sandbox.Labels, sandbox.Annotations = map[string]string{"bench": "hand"}, nil
	container.Labels, container.Annotations = map[string]string{"bench": "hand"}, nil
	sandbox.LogDirectory = filepath.Join(t.dir, "logs", name)
	sandbox.Linux.CgroupParent = filepath.Join(cgroup, name)
	if err := os.MkdirAll(filepath.Join(sandbox.LogDirectory, filepath.Dir(container.LogPath)), 0o755); err != nil {
		return handPod{}, 0, err
	}
	var p handPod
	begin := time.Now()
	s, err := rt.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: sandbox})
	if err != nil {
		return p, 0, fmt.Errorf("run sandbox by hand: %w", err)
	}
	p.sandbox = s.PodSandboxId
	if _, err := rt.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: p.sandbox}); err != nil {
		return p, 0, fmt.Errorf("read sandbox by hand: %w", err)
	}
	c, err := rt.CreateContainer(ctx, &cri.CreateContainerRequest{
		PodSandboxId:  p.sandbox,
		Config:        container,
		SandboxConfig: sandbox,
	})
	if err != nil {
		return p, 0, fmt.Errorf("create container by hand: %w", err)
	}
	p.container = c.ContainerId
	if _, err := rt.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: p.container}); err != nil {
		return p, 0, fmt.Errorf("start container by hand: %w", err)
	}
	if _, err := rt.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: p.container}); err != nil {
		return p, 0, fmt.Errorf("read container by hand: %w", err)
	}
	return p, time.Since(begin), nil
}

// stop stops the pod and returns how long that took. At this point a kubelet can finish the deletion of the API object.
func (p handPod) stop(ctx context.Context, rt cri.RuntimeServiceClient) (time.Duration, error) {
	begin := time.Now()
	if p.container != "" {
		if _, err := rt.StopContainer(ctx, &cri.StopContainerRequest{
			ContainerId: p.container,
			Timeout:     1,
		}); err != nil {
			return 0, fmt.Errorf("stop container by hand: %w", err)
		}
	}
	if p.sandbox == "" {
		return 0, nil
	}
	if _, err := rt.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: p.sandbox}); err != nil {
		return 0, fmt.Errorf("stop sandbox by hand: %w", err)
	}
	return time.Since(begin), nil
}

// remove removes the stopped pod.
func (p handPod) remove(ctx context.Context, rt cri.RuntimeServiceClient) error {
	if p.sandbox == "" {
		return nil
	}
	if _, err := rt.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.sandbox}); err != nil {
		return fmt.Errorf("remove sandbox by hand: %w", err)
	}
	return nil
}
