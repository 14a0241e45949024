package script

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	deviceapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"keelson/test/kit/deviceplugin"
)

// deviceSocket is the socket at which device plugins register; deviceCheckpoint is the device manager's checkpoint.
const (
	deviceSocket     = "kubelet/device-plugins/kubelet.sock"
	deviceCheckpoint = "kubelet/device-plugins/kubelet_internal_checkpoint"
)

// plugins are the device plugins of the node. Like real ones they register when they
// start, and whenever the agent's socket is created again.
type plugins struct {
	mu      sync.Mutex
	running map[string]*deviceplugin.Plugin // by resource
	hang    map[string]chan struct{}
}

// plugin starts a device plugin with devices of these IDs. It replaces an earlier plugin of that
// resource.
func (r *Run) plugin(args []string) error {
	resource := args[0]
	p := deviceplugin.New(deviceplugin.Config{
		Dir:      filepath.Dir(r.Path(deviceSocket)),
		Socket:   filepath.Base(resource) + ".sock",
		Resource: resource,
		PreStart: true,
		Done:     r.done,
		Answer:   answer(resource),
	}, args[1:]...)
	l, err := r.sockets.Listen(filepath.Join(filepath.Dir(r.Path(deviceSocket)), filepath.Base(resource)+".sock"))
	if err != nil {
		return err
	}
	p.Serve(l)
	r.plugins.mu.Lock()
	if r.plugins.running == nil {
		r.plugins.running, r.plugins.hang = map[string]*deviceplugin.Plugin{}, map[string]chan struct{}{}
	}
	old := r.plugins.running[resource]
	r.plugins.running[resource] = p
	r.plugins.mu.Unlock()
	if old != nil {
		old.Stop()
	}
	if err := r.introduce(p); status.Code(err) != codes.Unavailable {
		return err
	}
	return nil // there is no agent yet
}

// answer is a plugin's answer to Allocate: with everything that an answer can have or, if the
// resource is called plain, with nothing.
func answer(resource string) func([]string) *deviceapi.ContainerAllocateResponse {
	return func(ids []string) *deviceapi.ContainerAllocateResponse {
		if filepath.Base(resource) == "plain" {
			return &deviceapi.ContainerAllocateResponse{}
		}
		a := deviceplugin.Usual(ids)
		for _, id := range ids {
			a.Mounts = append(a.Mounts, &deviceapi.Mount{
				ContainerPath: "/given/" + id,
				HostPath:      "/dev",
				ReadOnly:      true,
			})
			a.CdiDevices = append(a.CdiDevices, &deviceapi.CDIDevice{Name: resource + "=" + id})
		}
		return a
	}
}

// introduce registers a plugin, if there is an agent.
func (w *World) introduce(p *deviceplugin.Plugin) error {
	conn, err := grpc.NewClient("passthrough:///"+w.Path(deviceSocket),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(w.sockets.Dial))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = deviceapi.NewRegistrationClient(conn).Register(context.Background(), p.Request())
	if err == nil {
		w.done("Register")
	}
	return err
}

// introduceAll registers the plugins with an agent that has just started.
func (w *World) introduceAll(path string) {
	if path != w.Path(deviceSocket) {
		return
	}
	w.plugins.mu.Lock()
	defer w.plugins.mu.Unlock()
	for _, p := range w.plugins.running {
		go w.introduce(p) //nolint:errcheck // fails if the agent is killed meanwhile
	}
}

// unplug ends a device plugin.
func (r *Run) unplug(args []string) error {
	r.plugins.mu.Lock()
	p := r.plugins.running[args[0]]
	delete(r.plugins.running, args[0])
	r.plugins.mu.Unlock()
	if p == nil {
		return fmt.Errorf("no plugin offers %s", args[0])
	}
	p.Stop()
	return nil
}

func (w *World) stopPlugins() {
	w.plugins.mu.Lock()
	defer w.plugins.mu.Unlock()
	for _, p := range w.plugins.running {
		p.Stop()
	}
}

// offers is the plugin of a resource.
func (r *Run) offers(resource string) (*deviceplugin.Plugin, error) {
	r.plugins.mu.Lock()
	defer r.plugins.mu.Unlock()
	if p := r.plugins.running[resource]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("no plugin offers %s", resource)
}

// device sets the health of a device, or removes it.
func (r *Run) device(args []string) error {
	p, err := r.offers(args[0])
	if err != nil {
		return err
	}
	switch args[2] {
	case "well":
		p.Set(deviceapi.Healthy, args[1])
	case "ill":
		p.Set(deviceapi.Unhealthy, args[1])
	case "gone":
		p.Drop(args[1])
	default:
		return fmt.Errorf("a device is well, ill or gone, not %q", args[2])
	}
	return nil
}

// pluginFault makes calls to a plugin fail or hang, or ends that.
func (r *Run) pluginFault(args []string) error {
	p, err := r.offers(args[0])
	if err != nil {
		return err
	}
	var f deviceplugin.Fault
	r.plugins.mu.Lock()
	defer r.plugins.mu.Unlock()
	if c := r.plugins.hang[args[0]]; c != nil {
		close(c)
		delete(r.plugins.hang, args[0])
	}
	switch what, text, _ := strings.Cut(args[2], "="); what {
	case "hang":
		f.Hang = make(chan struct{})
		r.plugins.hang[args[0]] = f.Hang
	case "fail":
		f.Err = errors.New(text)
	case "works":
	default:
		return fmt.Errorf("a call works, hangs or fails, not %q", what)
	}
	p.Fault(args[1], f)
	return nil
}

// showGiven shows the devices, mounts and variables from plugins with which a container was created.
func (r *Run) showGiven(pod, container string) (string, error) {
	c, err := r.config(pod, container)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, d := range c.GetDevices() {
		fmt.Fprintf(&b, "%s is %s %s\n", d.ContainerPath, d.HostPath, d.Permissions)
	}
	for _, m := range c.GetMounts() {
		if strings.HasPrefix(m.ContainerPath, "/given/") {
			fmt.Fprintf(&b, "%s is %s, read-only: %v\n", m.ContainerPath, m.HostPath, m.Readonly)
		}
	}
	for _, d := range c.GetCDIDevices() {
		fmt.Fprintf(&b, "%s\n", d.Name)
	}
	for _, e := range c.GetEnvs() {
		if strings.HasPrefix(e.Key, "DEVICE_") {
			fmt.Fprintf(&b, "%s=%s\n", e.Key, e.Value)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(c.Annotations)) {
		if strings.HasPrefix(k, "device.example/") {
			fmt.Fprintf(&b, "%s: %s\n", k, c.Annotations[k])
		}
	}
	return r.plain(b.String()), nil
}

// showAsked shows the calls to plugins, by resource.
func (r *Run) showAsked() string {
	r.plugins.mu.Lock()
	defer r.plugins.mu.Unlock()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(r.plugins.running)) {
		for _, method := range []string{"Allocate", "PreStartContainer"} {
			for _, ids := range r.plugins.running[name].Calls(method) {
				fmt.Fprintf(&b, "%s %s %v\n", method, name, ids)
			}
		}
	}
	return b.String()
}

// showNodeHas shows the allocatable amount and the capacity of a resource of the node.
func (r *Run) showNodeHas(resource string) string {
	n := r.Server.Node(Node)
	if n == nil {
		return "gone\n"
	}
	there, known := n.Status.Capacity[corev1.ResourceName(resource)]
	if !known {
		return "nothing\n"
	}
	well := n.Status.Allocatable[corev1.ResourceName(resource)]
	return fmt.Sprintf("%s of %s\n", well.String(), there.String())
}

// showHealth shows the health of a pod's devices.
func (r *Run) showHealth(name string) string {
	p := r.Server.Pod(Namespace, name)
	if p == nil {
		return "gone\n"
	}
	var b strings.Builder
	for _, cs := range p.Status.ContainerStatuses {
		for _, res := range cs.AllocatedResourcesStatus {
			for _, h := range res.Resources {
				fmt.Fprintf(&b, "%s: %s %s %s\n", cs.Name, res.Name, h.ResourceID, h.Health)
			}
		}
	}
	return b.String()
}
