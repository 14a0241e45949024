package device

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	deviceapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"keelson/test/kit/deviceplugin"
	"keelson/test/kit/parity"
)

// After a restart the agent keeps the allocations of pods. Until a plugin has registered again, no pod gets further
// devices of it.
func TestAllocationsAfterRestart(t *testing.T) {
	parity.ProvesPart(t, 2, "RES-51")
	parity.ProvesPart(t, 2, "RES-55")
	m := newMachine(t)
	p := m.plugin(deviceplugin.Config{Resource: gpu}, "a", "b")
	p.Place("b", 0, 1)
	m.until("the place of b",
		func() bool {
			return slices.ContainsFunc(m.pool.Allocatable(), func(h AllocatedDevice) bool { return len(h.Nodes) == 2 })
		})
	kept := podOf("kept", wants("main", gpu, 2))
	if err := m.admit(kept); err != nil {
		t.Fatal(err)
	}
	before := m.starts(kept, "main")
	// A pod that requests no devices has no entry in the checkpoint.
	half := podOf("half", wants("main", gpu, 0))
	if err := m.admit(half); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(m.dir, "kubelet_internal_checkpoint"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(content, []byte(`{"Data":{"PodDeviceEntries":[{"PodUID":"kept","ContainerName":"main",`+
		`"ResourceName":"example.com/gpu","DeviceIDs":{"-1":["a"],"0":["b"],"1":["b"]},"AllocResp":"`)) ||
		!bytes.Contains(content, []byte(`"}],"RegisteredDevices":{"example.com/gpu":["a","b"]}},"Checksum":`)) {
		t.Errorf("the file says %s", content)
	}
	if st, err := os.Stat(filepath.Join(m.dir, stateFile)); err != nil || st.Mode() != stateMode {
		t.Errorf("the file has mode %v: %v", st.Mode(), err)
	}

	m.restart()
	m.amount(gpu, 0, 0)
	if got := m.starts(kept, "main"); !reflect.DeepEqual(got, before) {
		t.Errorf("given %+v, and %+v before", got, before)
	}
	if h := m.pool.Devices("kept", "main"); len(h) != 2 || h[0].Health != v1.ResourceHealthStatusUnknown ||
		!slices.Equal(h[1].Nodes, []int{0, 1}) {
		t.Errorf("it has %+v", h)
	}
	for _, po := range []*v1.Pod{podOf("new", wants("main", gpu, 1)), kept} {
		if err := m.admit(po); err == nil ||
			err.Error() != "no healthy devices present; cannot allocate unhealthy devices example.com/gpu" {
			t.Errorf("%s: %v", po.UID, err)
		}
	}
	// A container without allocated devices does not start before the plugin has registered again.
	lost := podOf("lost", wants("main", gpu, 1))
	if _, err := m.pool.Contribute(t.Context(), lost, &lost.Spec.Containers[0]); err == nil ||
		!strings.Contains(err.Error(), "no healthy devices present") {
		t.Errorf("it starts without devices: %v", err)
	}
	p.Set(deviceapi.Healthy, "c")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	m.register(p, gpu, 3)
	if err := m.admit(kept); err != nil {
		t.Error(err)
	}
	if got := m.starts(lost, "main"); len(got.Devices) != 1 || got.Devices[0].ContainerPath != "/dev/c" {
		t.Errorf("then it is given %+v", got)
	}
	m.pool.Release("kept")
	m.until("the end of its entry", func() bool {
		content, err := os.ReadFile(filepath.Join(m.dir, stateFile))
		return err == nil && !bytes.Contains(content, []byte(`"kept"`)) && bytes.Contains(content, []byte(`"lost"`))
	})
}

// A checkpoint that cannot be used is set aside and reported.
func TestCorruptCheckpoint(t *testing.T) {
	m := newMachine(t)
	m.plugin(deviceplugin.Config{Resource: gpu}, "a")
	po := podOf("1", wants("main", gpu, 1))
	if err := m.admit(po); err != nil {
		t.Fatal(err)
	}
	m.stop()
	path := filepath.Join(m.dir, stateFile)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.Replace(content, []byte(`"a"`), []byte(`"x"`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	m.start()
	if len(m.pool.Holders()) != 0 || len(m.events.Lines()) != 1 ||
		!m.events.Has(eventUnusable+" use "+path+": decode devices: the checksum is ") {
		t.Errorf("holders %v, events %q", m.pool.Holders(), m.events.Lines())
	}
	if _, err := os.Stat(path + ".bad"); err != nil {
		t.Error(err)
	}
}

// A resource is removed from the node if its plugin does not register again within five minutes, after a stop of the
// plugin as well as after a restart of the agent.
func TestPluginsThatDoNotRegisterAgain(t *testing.T) {
	parity.Proves(t, "PLUG-23")
	m := newMachine(t)
	p := m.plugin(deviceplugin.Config{Resource: gpu}, "a", "b")
	po := podOf("1", wants("main", gpu, 1))
	if err := m.admit(po); err != nil {
		t.Fatal(err)
	}
	gone := func() {
		t.Helper()
		if next := m.pool.expire(time.Now().Add(4 * time.Minute)); time.Until(next) < 4*time.Minute ||
			time.Until(next) > 5*time.Minute {
			t.Errorf("looked at again at %v", next)
		}
		if next := m.pool.expire(time.Now().Add(5 * time.Minute)); !next.IsZero() {
			t.Errorf("looked at again at %v", next)
		}
		if there, well, gone := m.pool.Capacity(); len(there)+len(well) > 0 || !slices.Equal(gone, []string{gpu}) {
			t.Errorf("there are %v, %v are well, %v are gone", there, well, gone)
		}
		if err := m.admit(podOf("2", wants("main", gpu, 1))); err == nil ||
			err.Error() != "cannot allocate unregistered device example.com/gpu" {
			t.Errorf("another pod: %v", err)
		}
		if got := m.starts(po, "main"); len(got.Devices) != 1 {
			t.Errorf("its container starts again with %+v", got)
		}
	}
	p.Stop()
	m.amount(gpu, 2, 0)
	m.until("word to the pod that nothing is known of its device",
		func() bool { m.mu.Lock(); defer m.mu.Unlock(); return m.woken["1"] > 0 })
	if h := m.pool.Devices("1", "main"); h[0].Health != v1.ResourceHealthStatusUnknown {
		t.Errorf("it has %+v", h)
	}
	gone()
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	m.register(p, gpu, 2)
	if _, _, gone := m.pool.Capacity(); len(gone) > 0 {
		t.Errorf("%v are gone", gone)
	}
	m.restart()
	m.amount(gpu, 0, 0)
	gone()
}

// Allocations from before a reboot are dropped. The plugins are called again when they have registered.
func TestAllocationsAfterReboot(t *testing.T) {
	m := newMachine(t)
	p := m.plugin(deviceplugin.Config{Resource: gpu}, "a")
	po := podOf("1", wants("main", gpu, 1))
	if err := m.admit(po); err != nil {
		t.Fatal(err)
	}
	m.stop()
	m.boot = time.Now().Add(time.Hour)
	m.start()
	m.amount(gpu, 0, 0)
	if _, err := m.pool.Contribute(t.Context(), po, &po.Spec.Containers[0]); err == nil ||
		!strings.Contains(err.Error(), "no healthy devices present") {
		t.Errorf("it starts with what it had: %v", err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	m.register(p, gpu, 1)
	if got := m.starts(po, "main"); len(got.Devices) != 1 || len(p.Calls("Allocate")) != 2 {
		t.Errorf("it is given %+v after %d calls", got, len(p.Calls("Allocate")))
	}
}

// If the clock is set after the boot, the checkpoint looks older than the boot. Running pods keep their devices, and no
// other pod gets them.
func TestClockSetAfterBoot(t *testing.T) {
	for name, runs := range map[string]map[types.UID]bool{"running": {"1": true}, "the runtime does not answer": nil} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			p := m.plugin(deviceplugin.Config{Resource: gpu}, "a")
			po := podOf("1", wants("main", gpu, 1))
			if err := m.admit(po); err != nil {
				t.Fatal(err)
			}
			m.stop()
			m.boot, m.runs = time.Now().Add(time.Hour), runs
			m.start()
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			m.register(p, gpu, 1)
			if err := m.admit(podOf("2", wants("main", gpu, 1))); err == nil {
				t.Error("another pod is given what one has that runs")
			}
			if got := m.starts(po, "main"); len(got.Devices) != 1 || len(p.Calls("Allocate")) != 1 {
				t.Errorf("it is given %+v after %d calls", got, len(p.Calls("Allocate")))
			}
		})
	}
}
