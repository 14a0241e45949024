package plugin

import (
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// The agent panics twice while it registers one plugin. The plugin gets NotifyRegistrationStatus with
// an error, and is registered at the next try; other plugins are not affected.
func TestPanicDuringRegistration(t *testing.T) {
	r := newRig(t, nil)
	var left atomic.Int32
	left.Store(2)
	r.h.mu.Lock()
	r.h.taken = func(name string) {
		if name == "sick" && left.Add(-1) >= 0 {
			panic("at a plugin")
		}
	}
	r.h.mu.Unlock()
	sick, well := &testPlugin{info: info(CSI, "sick")}, &testPlugin{info: info(DRA, "well")}
	sick.serve(t, filepath.Join(r.dir, "sick.sock"))
	r.until("the plugin is notified of the panic", func() bool { return len(sick.statuses()) > 0 })
	if st := sick.statuses()[0]; st.PluginRegistered ||
		!strings.HasSuffix(st.Error, "internal error, the stack is in the agent's log: at a plugin") {
		t.Errorf("reported %v", st)
	}
	well.serve(t, filepath.Join(r.dir, "well.sock"))
	r.until("another plugin", func() bool { return len(well.statuses()) == 1 && well.statuses()[0].PluginRegistered })
	r.until("the third try", func() bool { return len(sick.statuses()) == 3 })
	if !sick.statuses()[2].PluginRegistered {
		t.Errorf("reported %v", sick.statuses())
	}
	if calls := r.h.calls(); slices.Contains(calls, "deregister sick sick.sock") {
		t.Errorf("a plugin that was never registered was deregistered: %q", calls)
	}
}
