package device

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"keelson/test/kit/deviceplugin"
	"keelson/test/kit/parity"
)

// A device plugin can also register through the plugin watcher.
func TestPluginsOfPluginWatcher(t *testing.T) {
	m := newMachine(t)
	if err := m.pool.Validate(gpu, "/x", []string{"v1alpha"}); err == nil ||
		err.Error() != "device plugin version, v1alpha, is not supported by kubelet" {
		t.Errorf("version: %v", err)
	}
	if err := m.pool.Validate("cpu", "/x", []string{"v1beta1"}); err == nil ||
		!strings.Contains(err.Error(), `the ResourceName "cpu" is invalid`) {
		t.Errorf("name: %v", err)
	}
	if err := m.pool.Validate(gpu, "/x", []string{"v1alpha", "v1beta1"}); err != nil {
		t.Error(err)
	}
	dir := t.TempDir()
	p := deviceplugin.New(deviceplugin.Config{Dir: dir, Socket: "p.sock", Resource: gpu}, "a")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	path := filepath.Join(dir, "p.sock")
	if err := m.pool.Register(t.Context(), gpu, path, nil); err != nil {
		t.Fatal(err)
	}
	m.amount(gpu, 1, 1)
	// Deregistering another endpoint of that name does not stop the plugin.
	if err := m.pool.Deregister(t.Context(), gpu, "/elsewhere"); err != nil {
		t.Fatal(err)
	}
	po := podOf("1", wants("main", gpu, 1))
	if err := m.admit(po); err != nil {
		t.Fatal(err)
	}
	if err := m.pool.Deregister(t.Context(), gpu, path); err != nil {
		t.Fatal(err)
	}
	m.amount(gpu, 1, 0)
	if got := m.starts(po, "main"); len(got.Devices) != 1 {
		t.Errorf("its container starts again with %+v", got)
	}
}

// The metrics have upstream's names.
func TestMetrics(t *testing.T) {
	parity.Proves(t, "RES-54")
	m := newMachine(t)
	p := m.plugin(deviceplugin.Config{Resource: gpu}, "a", "b")
	m.register(p, gpu, 2)
	for _, name := range []string{"cpu", "memory"} { // there could be any number of such names
		if err := deviceplugin.New(deviceplugin.Config{
			Dir:      m.dir,
			Socket:   "x.sock",
			Resource: name,
		}).Register(t.Context()); err == nil {
			t.Errorf("%s was registered", name)
		}
	}
	for _, uid := range []string{"1", "2"} {
		if err := m.admit(podOf(uid, wants("main", gpu, 1))); err != nil {
			t.Fatal(err)
		}
	}
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(m.pool)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, s := range f.Metric {
			if len(s.Label) != 1 || s.Label[0].GetName() != "resource_name" {
				t.Errorf("%s has labels %v", f.GetName(), s.Label)
			}
			got[f.GetName()+" "+s.Label[0].GetValue()] = s.GetCounter().GetValue() +
				float64(s.GetHistogram().GetSampleCount())
		}
	}
	for name, want := range map[string]float64{
		"kubelet_device_plugin_registration_total " + gpu:     2,
		"kubelet_device_plugin_registration_total invalid":    2,
		"kubelet_device_plugin_alloc_duration_seconds " + gpu: 2,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v; all: %v", name, got[name], want, got)
		}
	}
}
