package device

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	deviceapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"keelson/test/kit/deviceplugin"
)

// If the health of a device changes, OnNode is called, and OnPod for the pods that have the device, and for no other
// pods.
func TestDeviceHealth(t *testing.T) {
	m := newMachine(t)
	p := m.plugin(deviceplugin.Config{Resource: gpu}, "a", "b", "c")
	has, other := podOf("has", wants("main", gpu, 1)), podOf("other", wants("main", gpu, 1))
	for _, po := range []*v1.Pod{has, other} {
		if err := m.admit(po); err != nil {
			t.Fatal(err)
		}
	}
	health := func(want v1.ResourceHealthStatus) {
		t.Helper()
		if got := m.pool.Devices("has", "main"); len(got) != 1 || got[0].ID != "a" || got[0].Health != want {
			t.Errorf("it has %+v, want %s", got, want)
		}
	}
	for i, step := range []struct {
		do          func()
		there, well int
		health      v1.ResourceHealthStatus
	}{
		{func() { p.Set(deviceapi.Unhealthy, "a") }, 3, 2, v1.ResourceHealthStatusUnhealthy},
		{func() { p.Set(deviceapi.Healthy, "a") }, 3, 3, v1.ResourceHealthStatusHealthy},
		{func() { p.Drop("a") }, 2, 2, v1.ResourceHealthStatusUnknown},
		{func() { p.Set(deviceapi.Healthy, "a") }, 3, 3, v1.ResourceHealthStatusHealthy},
		{p.Stop, 3, 0, v1.ResourceHealthStatusUnknown},
	} {
		step.do()
		m.amount(gpu, step.there, step.well)
		health(step.health)
		m.until("word to the pod", func() bool { m.mu.Lock(); defer m.mu.Unlock(); return m.woken["has"] == i+1 })
		if all := m.pool.Allocatable(); len(all) != step.well {
			t.Errorf("step %d: %v are well", i, all)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.woken["other"] != 1 { // when the plugin stopped
		t.Errorf("the other pod was woken %d times", m.woken["other"])
	}
	if m.node == 0 {
		t.Error("the node was not notified")
	}
	if holders := m.pool.Holders(); len(holders) != 2 || !slices.Contains(holders, "has") {
		t.Errorf("holders: %v", holders)
	}
}
