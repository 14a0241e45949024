package device

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	deviceapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"keelson/internal/pods/pod"
	"keelson/test/kit/deviceplugin"
	"keelson/test/kit/parity"
)

const gpu = "example.com/gpu"

// An agent that takes over the directory removes earlier sockets and keeps other files.
func TestDirectory(t *testing.T) {
	parity.Proves(t, "PLUG-22")
	parity.Differs(t, "RES-44", "0099")
	m := newMachine(t)
	st, err := os.Stat(m.dir)
	if err != nil || st.Mode().Perm() != 0o750 {
		t.Errorf("directory: %v, %v", st.Mode(), err)
	}
	p := m.plugin(deviceplugin.Config{Resource: gpu}, "a")
	if err := os.WriteFile(filepath.Join(m.dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	first, err := os.Stat(filepath.Join(m.dir, "kubelet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	m.restart()
	if _, err := os.Lstat(filepath.Join(m.dir, "p.sock")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the plugin's socket: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(m.dir, "file")); err != nil {
		t.Error(err)
	}
	if next, err := os.Stat(filepath.Join(m.dir, "kubelet.sock")); err != nil ||
		!next.ModTime().After(first.ModTime()) {
		t.Errorf("the agent's socket is the old one: %v", err)
	}
	// After a restart a plugin is not registered until it registers again.
	m.amount(gpu, 0, 0)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	m.register(p, gpu, 1)
}

// An agent does not take over the directory while another agent serves the registration socket.
func TestDirectoryOfAnotherAgent(t *testing.T) {
	m := newMachine(t)
	p := m.plugin(deviceplugin.Config{Resource: gpu}, "a")
	other := m.build()
	l, err := other.bind(t.Context())
	if err == nil {
		l.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "another agent answers at "+m.dir) {
		t.Errorf("the directory of another agent was taken: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(m.dir, "p.sock")); err != nil {
		t.Error(err)
	}
	// Nor does it write there.
	if err := os.Remove(filepath.Join(m.dir, stateFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	other.unsaved = true
	if err := other.save(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(m.dir, stateFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it has written: %v", err)
	}
	m.register(p, gpu, 1)
}

// Allocations from before the agent owned the directory are written to the checkpoint as soon as it owns it.
func TestEarlierAllocationsAreSaved(t *testing.T) {
	m := newMachine(t)
	m.plugin(deviceplugin.Config{Resource: gpu}, "a")
	before := m.pool
	if err := m.admit(podOf("1", wants("main", gpu, 1))); err != nil {
		t.Fatal(err)
	}
	m.stop()
	file := filepath.Join(m.dir, "kubelet_internal_checkpoint")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	m.pool = m.build()
	m.pool.allocated, m.pool.unsaved = before.allocated, true
	if err := m.pool.save(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Fatal("the file was written while the directory may be another agent's")
	}
	m.run()
	m.until("the file", func() bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), `"PodUID":"1"`)
	})
}

// TestRegistration checks which plugins may register, and the errors for the others.
func TestRegistration(t *testing.T) {
	parity.Proves(t, "RES-45", "PLUG-24")
	parity.ProvesPart(t, 2, "PLUG-20")
	parity.ProvesPart(t, 3, "RES-46")
	parity.Differs(t, "RES-44", "0099")
	m := newMachine(t)
	for _, c := range []struct{ version, resource, socket, want string }{
		{"v1alpha", gpu, "", `requested API version "v1alpha" is not supported by kubelet. Supported version is ["v1beta1"]`},
		{"v1", gpu, "", `requested API version "v1" is not supported by kubelet. Supported version is ["v1beta1"]`},
		{"", "cpu", "", `the ResourceName "cpu" is invalid`},
		{"", "", "", `the ResourceName "" is invalid`},
		{"", "kubernetes.io/x", "", `the ResourceName "kubernetes.io/x" is invalid`},
		{"", "a.kubernetes.io/x", "", `the ResourceName "a.kubernetes.io/x" is invalid`},
		{"", "requests.example.com/x", "", `the ResourceName "requests.example.com/x" is invalid`},
		{"", "exa mple.com/x", "", `the ResourceName "exa mple.com/x" is invalid`},
		{"", "example.com/a/b", "", `the ResourceName "example.com/a/b" is invalid`},
		{"", gpu, "../p.sock", `the Endpoint "../p.sock" is not the name of a socket in the directory`},
		{"", gpu, socketName, `the Endpoint "kubelet.sock" is not the name of a socket in the directory`},
	} {
		if c.socket == "" {
			c.socket = "p.sock"
		}
		err := deviceplugin.New(deviceplugin.Config{
			Dir:      m.dir,
			Socket:   c.socket,
			Resource: c.resource,
			Version:  c.version,
		}).Register(t.Context())
		if s := status.Convert(err); s.Code() != codes.Unknown || s.Message() != c.want {
			t.Errorf("version %q, resource %q, endpoint %q: %v, want %s", c.version, c.resource, c.socket, err, c.want)
		}
	}
	if there, _, gone := m.pool.Capacity(); len(there)+len(gone) > 0 {
		t.Errorf("the node has %v, and had %v", there, gone)
	}
	p := m.plugin(deviceplugin.Config{Resource: gpu}, "a", "b")
	if calls := p.Calls("GetDevicePluginOptions"); len(calls) != 1 {
		t.Errorf("asked for its options %d times", len(calls))
	}
	if calls := p.Calls("ListAndWatch"); len(calls) != 1 {
		t.Errorf("followed %d times", len(calls))
	}

	// A plugin whose options cannot be read is not used.
	sick := deviceplugin.New(deviceplugin.Config{Dir: m.dir, Socket: "sick.sock", Resource: "example.com/sick"}, "a")
	sick.Fault("GetDevicePluginOptions", deviceplugin.Fault{Err: errors.New("what?")})
	if err := sick.Start(); err != nil {
		t.Fatal(err)
	}
	defer sick.Stop()
	if err := sick.Register(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "failed to get device plugin options: ") ||
		!strings.Contains(err.Error(), "what?") {
		t.Errorf("registered: %v", err)
	}
	if there, _, _ := m.pool.Capacity(); len(there) != 1 || len(sick.Calls("ListAndWatch")) > 0 {
		t.Errorf("the node has %v; it was followed: %v", there, sick.Calls("ListAndWatch"))
	}
	// A plugin whose ListAndWatch fails has no devices, and ListAndWatch is not called again.
	mute := deviceplugin.New(deviceplugin.Config{Dir: m.dir, Socket: "mute.sock", Resource: "example.com/mute"}, "a")
	mute.Fault("ListAndWatch", deviceplugin.Fault{Err: errors.New("never")})
	if err := mute.Start(); err != nil {
		t.Fatal(err)
	}
	defer mute.Stop()
	m.register(mute, "example.com/mute", 0)
	m.until("the end of the list", func() bool {
		m.pool.mu.Lock()
		defer m.pool.mu.Unlock()
		return m.pool.resources["example.com/mute"].plugin.life.Err() != nil
	})
	if calls := mute.Calls("ListAndWatch"); len(calls) != 1 {
		t.Errorf("followed %d times", len(calls))
	}
}

// The number of resources that plugins may register is bounded.
func TestResourceLimit(t *testing.T) {
	m := newMachine(t)
	m.pool.mu.Lock()
	for i := range maxResources {
		m.pool.resources["example.com/"+strings.Repeat("x", i+1)] = &resource{stopped: time.Now()}
	}
	m.pool.mu.Unlock()
	p := deviceplugin.New(deviceplugin.Config{Dir: m.dir, Socket: "p.sock", Resource: gpu}, "a")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	if err := p.Register(t.Context()); err == nil || !strings.Contains(err.Error(), "256 resources") {
		t.Errorf("registered: %v", err)
	}
}

// A container gets everything that plugins can contribute.
func TestContribution(t *testing.T) {
	parity.Proves(t, "PLUG-26")
	parity.ProvesPart(t, 3, "RES-46")
	m := newMachine(t)
	p := m.plugin(deviceplugin.Config{
		Resource: gpu,
		PreStart: true,
		Answer: func(ids []string) *deviceapi.ContainerAllocateResponse {
			a := deviceplugin.Usual(ids)
			a.Envs["COMMON"] = "gpu"
			a.Mounts = []*deviceapi.Mount{{
				ContainerPath: "/lib/gpu",
				HostPath:      "/etc",
				ReadOnly:      true,
			}, {ContainerPath: "/run/gpu", HostPath: "/run"}}
			a.CdiDevices = []*deviceapi.CDIDevice{{Name: "example.com/gpu=" + strings.Join(ids, "")}}
			return a
		},
	}, "a", "b")
	nic := m.plugin(deviceplugin.Config{
		Resource: "example.com/nic",
		Socket:   "nic.sock",
		Answer: func(ids []string) *deviceapi.ContainerAllocateResponse {
			a := deviceplugin.Usual(ids)
			a.Envs["COMMON"] = "nic"
			return a
		},
	}, "n")
	m.plugin(deviceplugin.Config{
		Resource: "example.com/plain",
		Socket:   "plain.sock",
		Answer: func([]string) *deviceapi.ContainerAllocateResponse {
			return &deviceapi.ContainerAllocateResponse{}
		},
	}, "x")

	c := wants("main", gpu, 2)
	c.Resources.Limits["example.com/nic"] = one()
	c.Resources.Limits["example.com/plain"] = one()
	c.Resources.Limits["example.com/others"] = one() // of no plugin
	po := podOf("1", c, v1.Container{Name: "side"})
	if err := m.admit(po); err != nil {
		t.Fatal(err)
	}
	want := pod.Contribution{
		Env: []pod.EnvVar{{
			Name:  "COMMON",
			Value: "gpu",
		}, {Name: "DEVICE_a", Value: "a"}, {Name: "DEVICE_b", Value: "b"}, {Name: "DEVICE_n", Value: "n"}},
		Devices: []pod.Device{{
			HostPath:      "/dev/null",
			ContainerPath: "/dev/a",
			Permissions:   "rw",
		}, {HostPath: "/dev/null", ContainerPath: "/dev/b", Permissions: "rw"},
			{HostPath: "/dev/null", ContainerPath: "/dev/n", Permissions: "rw"}},
		Mounts: []pod.Mount{{
			ContainerPath: "/lib/gpu",
			HostPath:      "/etc",
			ReadOnly:      true,
		}, {ContainerPath: "/run/gpu", HostPath: "/run"}},
		CDIDevices: []string{"example.com/gpu=ab"},
		Annotations: map[string]string{
			"device.example/a": "given",
			"device.example/b": "given",
			"device.example/n": "given",
		},
	}
	for range 2 { // and again when it is restarted
		if got := m.starts(po, "main"); !reflect.DeepEqual(got, want) {
			t.Errorf("given %+v, want %+v", got, want)
		}
	}
	if got := m.starts(po, "side"); !reflect.DeepEqual(got, pod.Contribution{}) {
		t.Errorf("the other container is given %+v", got)
	}
	if calls := p.Calls("Allocate"); len(calls) != 1 || !slices.Equal(calls[0], []string{"a", "b"}) {
		t.Errorf("allocated %v", calls)
	}
	if calls := p.Calls("PreStartContainer"); len(calls) != 2 || !slices.Equal(calls[1], []string{"a", "b"}) {
		t.Errorf("notified of starts: %v", calls)
	}
	// These calls are only for plugins whose options ask for them.
	for _, call := range []string{"GetPreferredAllocation", "PreStartContainer"} {
		if calls := nic.Calls(call); len(calls) > 0 {
			t.Errorf("%s of a plugin that did not ask for it: %v", call, calls)
		}
	}
	if left := p.Patience("PreStartContainer"); left < 29*time.Second || left > 30*time.Second {
		t.Errorf("a start waits %v for a plugin, want 30 s", left)
	}
	// If PreStartContainer fails, the container does not start.
	p.Fault("PreStartContainer", deviceplugin.Fault{Err: errors.New("not yet")})
	if _, err := m.pool.Contribute(t.Context(), po, &po.Spec.Containers[0]); err == nil ||
		err.Error() != "device plugin PreStartContainer rpc failed with err: rpc error: code = Unknown desc = not yet" {
		t.Errorf("started: %v", err)
	}
	m.pool.Release("1")
	if free := m.free(gpu); len(free) != 2 || len(m.pool.Holders()) != 0 {
		t.Errorf("after the pod %v are free, and %v hold some", free, m.pool.Holders())
	}
}

// Pods that cannot get their devices are rejected with upstream's errors.
func TestAllocateErrors(t *testing.T) {
	m := newMachine(t)
	p := m.plugin(deviceplugin.Config{Resource: gpu}, "a", "b")
	refused := func(po *v1.Pod, want string) {
		t.Helper()
		if err := m.admit(po); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", po.UID, err, want)
		}
		m.pool.Release(po.UID)
	}
	refused(podOf("many", wants("main", gpu, 3)),
		"requested number of devices unavailable for example.com/gpu. Requested: 3, Available: 2")
	first := podOf("one", wants("main", gpu, 1))
	if err := m.admit(first); err != nil {
		t.Fatal(err)
	}
	refused(podOf("second", wants("main", gpu, 2)),
		"requested number of devices unavailable for example.com/gpu. Requested: 2, Available: 1")
	if err := m.pool.Allocate(first, &podOf("", wants("main", gpu, 2)).Spec.Containers[0], noHint); err == nil ||
		err.Error() != `pod "one" container "main" changed request for resource "example.com/gpu" from 1 to 2` {
		t.Errorf("changed: %v", err)
	}
	p.Fault("Allocate", deviceplugin.Fault{Err: errors.New("no way")})
	refused(podOf("denied", wants("main", gpu, 1)), "rpc error: code = Unknown desc = no way")
	p.Fault("Allocate", deviceplugin.Fault{})
	p.Set(deviceapi.Unhealthy, "a", "b")
	m.amount(gpu, 2, 0)
	refused(podOf("sick", wants("main", gpu, 1)),
		"no healthy devices present; cannot allocate unhealthy devices example.com/gpu")
	p.Set(deviceapi.Healthy, "b")
	m.amount(gpu, 2, 1)
	if err := m.admit(first); err == nil ||
		err.Error() != "previously allocated devices are no longer healthy; cannot allocate unhealthy devices "+
			"example.com/gpu" {
		t.Errorf("admitted again with a sick device: %v", err)
	}
	if got := m.starts(first, "main"); len(got.Devices) != 1 {
		t.Errorf("its container starts again with %+v", got)
	}
	refused(podOf("third", wants("main", gpu, 2)),
		"requested number of devices unavailable for example.com/gpu. Requested: 2, Available: 1")
}

// Allocate is called for one container. Of several responses the first one counts, as with upstream. No response is an
// error.
func TestAllocateResponseLength(t *testing.T) {
	m := newMachine(t)
	n := 0
	m.plugin(deviceplugin.Config{Resource: gpu, Containers: func() int { return n }}, "a")
	// The error contains the response as protobuf prints it, with varying spaces.
	if err := m.admit(podOf("none", wants("main", gpu, 1))); err == nil ||
		strings.TrimSpace(err.Error()) != "no containers return in allocation response" {
		t.Errorf("no answer: %v", err)
	}
	m.pool.Release("none")
	n = 2
	po := podOf("two", wants("main", gpu, 1))
	if err := m.admit(po); err != nil {
		t.Fatal(err)
	}
	if got := m.starts(po, "main"); len(got.Devices) != 1 || got.Devices[0].ContainerPath != "/dev/a" {
		t.Errorf("its container starts with %+v", got)
	}
}

// Devices of init containers are reused by later containers of the pod; sidecars keep theirs.
func testDevicesOfInitContainers(t *testing.T) {
	m := newMachine(t)
	p := m.plugin(deviceplugin.Config{Resource: gpu}, "a", "b", "c", "ill")
	p.Set(deviceapi.Unhealthy, "ill")
	m.amount(gpu, 4, 3)
	always := v1.ContainerRestartPolicyAlways
	side := wants("side", gpu, 1)
	side.RestartPolicy = &always
	po := podOf("1", wants("main", gpu, 1), wants("more", gpu, 1))
	po.Spec.InitContainers = []v1.Container{wants("first", gpu, 2), side, wants("second", gpu, 1)}
	if err := m.admit(po); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"first":  {"a", "b"},
		"side":   {"a"},
		"second": {"b"},
		"main":   {"b"},
		"more":   {"c"},
	} {
		if got := m.ids(po, name); !slices.Equal(got, want) {
			t.Errorf("%s has %v, want %v", name, got, want)
		}
	}
	if calls := p.Calls("Allocate"); len(calls) != 5 {
		t.Errorf("allocated %v", calls)
	}
	if free := m.free(gpu); len(free) != 0 {
		t.Errorf("free: %v", free)
	}
}

// The preference of the plugin selects among devices that are equally good for the node.
func testPreference(t *testing.T) {
	m := newMachine(t)
	last := func(available, _ []string, n int) []string { return available[len(available)-n:] }
	p := m.plugin(deviceplugin.Config{Resource: gpu, Prefer: last}, "a", "b", "c", "d")
	po := podOf("1", wants("main", gpu, 1))
	po.Spec.InitContainers = []v1.Container{wants("init", gpu, 2)}
	if err := m.admit(po); err != nil {
		t.Fatal(err)
	}
	if a, b := m.ids(po, "init"), m.ids(po, "main"); !slices.Equal(a, []string{"c", "d"}) || len(b) != 1 ||
		!slices.Contains(a, b[0]) {
		t.Errorf("the init container has %v, the other %v", a, b)
	}
	if free := m.free(gpu); !slices.Equal(free, []string{"a", "b"}) {
		t.Errorf("free: %v", free)
	}
	if calls := p.Calls("Allocate"); !slices.Equal(calls[0], []string{"c", "d"}) {
		t.Errorf("allocated %v", calls)
	}
	// If there is nothing to choose from, GetPreferredAllocation is not called.
	asked := len(p.Calls("GetPreferredAllocation"))
	if err := m.admit(podOf("2", wants("main", gpu, 2))); err != nil {
		t.Fatal(err)
	}
	if n := len(p.Calls("GetPreferredAllocation")); n != asked {
		t.Errorf("asked %d times more", n-asked)
	}
	m.pool.Release("2")
	p.Fault("GetPreferredAllocation", deviceplugin.Fault{Err: errors.New("none")})
	if err := m.admit(podOf("3", wants("main", gpu, 1))); err == nil ||
		!strings.Contains(err.Error(), "device plugin GetPreferredAllocation rpc failed with err: ") {
		t.Errorf("admitted: %v", err)
	}
}

// Confirm can be called for a terminating pod after its devices were released. It must not allocate any then, because
// they would not be released again.
func TestTerminatingPodGetsNoDevices(t *testing.T) {
	m := newMachine(t)
	p := m.plugin(deviceplugin.Config{Resource: gpu}, "a")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	po := podOf("goes", wants("main", gpu, 1))
	for range 20 {
		if err := m.pool.Confirm(gone, po); !errors.Is(err, context.Canceled) {
			t.Errorf("confirmed: %v", err)
		}
	}
	if has := m.pool.Holders(); len(has) > 0 || len(p.Calls("Allocate")) > 0 {
		t.Errorf("%v have something, allocated %v", has, p.Calls("Allocate"))
	}
}

// A plugin that hangs blocks only the pod that requests its devices.
func TestHangingPluginBlocksOnlyItsPod(t *testing.T) {
	m := newMachine(t)
	p := m.plugin(deviceplugin.Config{Resource: gpu}, "a", "b")
	m.plugin(deviceplugin.Config{Resource: "example.com/nic", Socket: "nic.sock"}, "n")
	hang := make(chan struct{})
	p.Fault("Allocate", deviceplugin.Fault{Hang: hang})
	stuck := podOf("stuck", wants("main", gpu, 1))
	if err := m.pool.Allocate(stuck, &stuck.Spec.Containers[0], noHint); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.pool.Confirm(ctx, stuck) }()
	m.until("the call", func() bool { return len(p.Calls("Allocate")) == 1 })

	if err := m.admit(podOf("other", wants("main", "example.com/nic", 1))); err != nil {
		t.Fatal(err)
	}
	p.Fault("Allocate", deviceplugin.Fault{})
	next := podOf("next", wants("main", gpu, 1))
	if err := m.admit(next); err != nil { // even of the same plugin
		t.Fatal(err)
	}
	if a, b := m.ids(stuck, "main"), m.ids(next, "main"); len(a) != 1 || len(b) != 1 || a[0] == b[0] {
		t.Errorf("one has %v, the other %v", a, b)
	}
	p.Set(deviceapi.Unhealthy, "b")
	m.amount(gpu, 2, 1) // the list of the plugin is still processed
	// The pod terminates: the call to the plugin is cancelled.
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) && status.Code(err) != codes.Canceled {
		t.Errorf("the pod's end: %v", err)
	}
	m.pool.Release("stuck")
	if free := m.free(gpu); !slices.Equal(free, []string{"a"}) {
		t.Errorf("free: %v", free)
	}
	close(hang)

	// An answer that arrives after the release of the pod is dropped.
	late := make(chan struct{})
	p.Fault("Allocate", deviceplugin.Fault{Hang: late})
	go func() { done <- m.pool.Confirm(t.Context(), stuck) }()
	m.until("the call", func() bool { return len(p.Calls("Allocate")) == 3 })
	m.pool.Release("stuck")
	close(late)
	if err := <-done; !errors.Is(err, errReleased) {
		t.Errorf("answered after the end: %v", err)
	}
	if len(m.pool.Devices("stuck", "main")) > 0 {
		t.Error("a pod that is gone has devices")
	}
}

// A list that repeats the last one has no effect. Changes are announced at most once per second.
func TestListsAreAnnouncedTogether(t *testing.T) {
	m := newMachine(t)
	p := m.plugin(deviceplugin.Config{Resource: gpu}, "a")
	m.until("word to the node", func() bool { m.mu.Lock(); defer m.mu.Unlock(); return m.node > 0 })
	began := time.Now()
	m.mu.Lock()
	before := m.node
	m.mu.Unlock()
	for i := range 2000 {
		p.Set([]string{deviceapi.Healthy, deviceapi.Unhealthy}[i%2], "a")
	}
	p.Set(deviceapi.Unhealthy, "a")
	m.amount(gpu, 1, 0)
	m.until("word of the last", func() bool { // unannounced is cleared before OnNode is called
		m.mu.Lock()
		reported := m.node
		m.mu.Unlock()
		m.pool.mu.Lock()
		defer m.pool.mu.Unlock()
		return !m.pool.unannounced && reported > before
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	if most := 2 + int(time.Since(began)/minAnnouncePeriod); m.node-before > most {
		t.Errorf("the node was reported %d times in %v", m.node-before, time.Since(began))
	}
}

// A resource belongs to the plugin that registered last.
func TestPluginIsReplaced(t *testing.T) {
	parity.Proves(t, "PLUG-21")
	m := newMachine(t)
	old := m.plugin(deviceplugin.Config{Resource: gpu}, "a", "b")
	m.pool.mu.Lock()
	before := m.pool.resources[gpu].plugin
	m.pool.mu.Unlock()
	m.plugin(deviceplugin.Config{Resource: gpu, Socket: "next.sock"}, "x")
	if before.life.Err() == nil {
		t.Error("the old one is still followed")
	}
	old.Set(deviceapi.Unhealthy, "a", "b")
	old.Stop()
	po := podOf("1", wants("main", gpu, 1))
	if err := m.admit(po); err != nil || !slices.Equal(m.ids(po, "main"), []string{"x"}) {
		t.Errorf("it has %v: %v", m.ids(po, "main"), err)
	}
	m.amount(gpu, 1, 1)
}

// The health check fails while no plugin can register.
func TestRegistrationHealthCheck(t *testing.T) {
	m := newMachine(t)
	if err := m.pool.Healthy(); err != nil {
		t.Error(err)
	}
	p := m.build()
	broken := errors.New("no socket")
	p.cfg.Listen = func(string) (net.Listener, error) { return nil, broken }
	if err := p.listen(t.Context()); !errors.Is(err, broken) {
		t.Errorf("listening: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); p.serveRegistration(ctx) }()
	m.until("the check to fail", func() bool {
		err := p.Healthy()
		return err != nil &&
			strings.HasPrefix(err.Error(),
				"device plugin registration gRPC server failed and no device plugins can register")
	})
	cancel()
	<-done
	// The server ends while the agent runs.
	dying := m.build()
	l, err := net.Listen("unix", m.dir+"/x.sock")
	if err != nil {
		t.Fatal(err)
	}
	dying.cfg.Listen = func(string) (net.Listener, error) { return l, nil }
	ctx, cancel = context.WithCancel(t.Context())
	done = make(chan struct{})
	go func() { defer close(done); dying.serveRegistration(ctx) }()
	m.until("the server", func() bool { dying.mu.Lock(); defer dying.mu.Unlock(); return dying.owned })
	if err := dying.Healthy(); err != nil {
		t.Error(err)
	}
	l.Close()
	m.until("the check to fail", func() bool { return dying.Healthy() != nil })
	cancel()
	<-done
}
