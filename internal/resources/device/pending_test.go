package device

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/test/kit/deviceplugin"
)

// Pods wait for the plugins of an earlier agent, for the configured time. Pods that the earlier agent admitted wait
// without a deadline.
func TestPodsWaitForPlugins(t *testing.T) {
	m := newMachine(t)
	p := m.plugin(deviceplugin.Config{Resource: gpu}, "a", "b")
	ran := podOf("ran", wants("main", gpu, 1))
	if err := m.admit(ran); err != nil {
		t.Fatal(err)
	}
	fresh := podOf("new", wants("first", "example.com/other", 1), wants("second", gpu, 1))
	none := podOf("none", wants("main", gpu, 0))
	claims := podOf("claims", wants("main", gpu, 1))
	claims.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{
		RequestMappings: []v1.ContainerExtendedResourceRequest{{ContainerName: "main", ResourceName: gpu}},
	}
	waits := func(l pod.Late, resources ...string) {
		t.Helper()
		if !slices.Equal(l.Resources, resources) {
			t.Errorf("waits for %q, want %q", l.Resources, resources)
		}
	}
	waits(m.pool.Late(fresh, false)) // its plugin is registered
	m.wait = time.Minute
	m.restart()
	for _, po := range []*v1.Pod{none, claims} {
		waits(m.pool.Late(po, false))
	}
	l := m.pool.Late(fresh, false)
	if waits(l, gpu); !slices.Equal(l.Containers, []string{"second"}) || time.Until(l.Until) > time.Minute ||
		time.Until(l.Until) < 30*time.Second {
		t.Errorf("it waits as %+v", l)
	}
	if l := m.pool.Late(ran, true); !l.Until.IsZero() {
		t.Errorf("one that was admitted waits until %v", l.Until)
	}
	waits(m.pool.LateForRunning(ran)) // the checkpoint has the answer of the plugin
	waits(m.pool.LateForRunning(fresh), gpu)

	if next := m.pool.expire(time.Now()); time.Until(next) > time.Minute || m.waits() != 0 {
		t.Errorf("looked at again at %v, after %d calls", next, m.waits())
	}
	m.pool.expire(time.Now().Add(time.Minute))
	m.pool.expire(time.Now().Add(2 * time.Minute))
	if m.waits() != 1 {
		t.Errorf("called %d times when the time was over", m.waits())
	}
	waits(m.pool.Late(fresh, false))
	waits(m.pool.Late(fresh, true), gpu)
	m.pool.expire(time.Now().Add(time.Hour)) // the resource is removed from the node
	waits(m.pool.Late(fresh, true), gpu)

	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	m.register(p, gpu, 2)
	m.until("the wait to end", func() bool { return m.waits() == 2 })
	waits(m.pool.Late(fresh, true))
	waits(m.pool.LateForRunning(fresh))
}

// After a reboot a pod waits for its plugin, because its devices have to be allocated again.
func TestPodsWaitForPluginsAfterReboot(t *testing.T) {
	m := newMachine(t)
	m.plugin(deviceplugin.Config{Resource: gpu}, "a")
	po := podOf("1", wants("main", gpu, 1))
	if err := m.admit(po); err != nil {
		t.Fatal(err)
	}
	m.stop()
	m.boot = time.Now().Add(time.Hour)
	m.start()
	if l := m.pool.LateForRunning(po); !slices.Equal(l.Resources, []string{gpu}) {
		t.Errorf("it waits for %q", l.Resources)
	}
}
