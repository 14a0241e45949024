package script

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/test/kit/apiproxy"
)

func (r *Run) exit(args []string) error {
	code, err := strconv.ParseInt(args[2], 10, 32)
	if err != nil {
		return err
	}
	return r.Runtime.Exit(args[0], args[1], int32(code))
}

func (r *Run) health(args []string, sick bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sick[args[0]+"/"+args[1]] = sick
	return nil
}

// stopSandbox stops a sandbox without the agent, as another client of the runtime
// can do: the containers are killed, and after a while the sandbox ends.
func (r *Run) stopSandbox(args []string) error {
	for _, p := range r.Runtime.Pods() {
		for _, c := range p.Containers {
			if p.Name == Namespace+"/"+args[0] && c.Status.State == cri.ContainerState_CONTAINER_RUNNING {
				if err := r.Runtime.Exit(args[0], c.Status.Metadata.Name, 137); err != nil {
					return err
				}
			}
		}
	}
	time.Sleep(500 * time.Millisecond)
	return r.Runtime.KillSandbox(args[0])
}

// lose removes a container without the agent, as another client of the runtime
// can do. Without a container it removes everything of the pod in the runtime, as
// after a reboot of the machine.
func (r *Run) lose(args []string) error {
	if len(args) == 1 {
		return r.loseAll(args[0])
	}
	id := ""
	for _, p := range r.Runtime.Pods() {
		for _, c := range p.Containers {
			if p.Name == Namespace+"/"+args[0] && c.Status.Metadata.Name == args[1] {
				id = c.Status.Id // the newest comes last
			}
		}
	}
	if id == "" {
		return errors.New("there is no such container")
	}
	_, err := r.Runtime.RemoveContainer(context.Background(), &cri.RemoveContainerRequest{ContainerId: id})
	return err
}

func (r *Run) loseAll(pod string) error {
	list, err := r.Runtime.ListPodSandbox(context.Background(), &cri.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	for _, s := range list.Items {
		if s.Metadata.Name != pod {
			continue
		}
		if _, err := r.Runtime.RemovePodSandbox(context.Background(),
			&cri.RemovePodSandboxRequest{PodSandboxId: s.Id}); err != nil {
			return err
		}
	}
	return nil
}

// reboot ends the agent and everything that runs, and starts the agent again. The runtime keeps its records of
// sandboxes and containers.
func (r *Run) reboot([]string) error {
	r.Stop()
	for _, p := range r.Runtime.Pods() {
		if p.Sandbox.State != cri.PodSandboxState_SANDBOX_READY {
			continue
		}
		if err := r.Runtime.KillSandbox(p.Name); err != nil {
			return err
		}
	}
	// The agent detects the reboot by a checkpoint that is older than the boot of the machine.
	err := os.Chtimes(r.Path(deviceCheckpoint), time.Unix(0, 0), time.Unix(0, 0))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	r.Start()
	return nil
}

// removeImage removes an image without the agent.
func (r *Run) removeImage(args []string) error {
	_, err := r.Runtime.RemoveImage(context.Background(),
		&cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: args[0]}})
	return err
}

// runtimeIs disconnects the runtime or connects it again; without an argument it
// shows the content of the runtime.
func (r *Run) runtimeIs(args []string) (string, error) {
	switch first(args) {
	case "":
		return r.showRuntime(), nil
	case "down":
		r.setDown(true)
		r.Runtime.Disconnect()
	case "up":
		r.setDown(false)
		r.Connect()
	default:
		return "", fmt.Errorf("the runtime is up or down, not %s", args[0])
	}
	return "", nil
}

func (r *Run) networkIs(how string) error {
	if how != "up" && how != "down" {
		return fmt.Errorf("the network is up or down, not %s", how)
	}
	r.Runtime.SetCondition(cri.NetworkReady, how == "up", "", "")
	return nil
}

func (r *Run) apiIs(args []string) error {
	states := map[string]apiproxy.Link{"up": apiproxy.Up, "down": apiproxy.Drop, "hang": apiproxy.Hang}
	s, ok := states[args[0]]
	if !ok {
		return fmt.Errorf("the API server is up, down or hang, not %s", args[0])
	}
	r.Proxy.SetLink(s)
	return nil
}

// crash kills the agent after this number of further calls that change something.
func (r *Run) crash(args []string) error {
	n, err := strconv.Atoi(args[0])
	r.mu.Lock()
	defer r.mu.Unlock()
	r.crashAt = r.writes + n
	return err
}
