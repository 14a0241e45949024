package pod

import "testing"

func TestEffectShownBy(t *testing.T) {
	have := Runtime{
		Sandboxes: []Sandbox{
			{ID: "ready", Ready: true, IPs: []string{"10.0.0.1"}},
			{ID: "bare", Ready: true},
			{ID: "host", Ready: true, HostNetwork: true},
			{ID: "down"},
		},
		Containers: []Container{
			{ID: "made", State: StateCreated},
			{ID: "runs", State: StateRunning},
			{ID: "over", State: StateExited},
		},
	}
	for _, c := range []struct {
		name string
		e    Effect
		want bool
	}{
		{"a container that runs", Effect{Container: "runs", State: StateRunning}, true},
		{"a container that ran and ended since", Effect{Container: "over", State: StateRunning}, true},
		{"a container that does not run yet", Effect{Container: "made", State: StateRunning}, false},
		{"a container that was stopped and still runs", Effect{Container: "runs", State: StateExited}, false},
		{"a container that is not there yet", Effect{Container: "new", State: StateRunning}, false},
		{"a container that was removed", Effect{Container: "old", Gone: true}, true},
		{"a container that was removed and is still there", Effect{Container: "over", Gone: true}, false},
		{"a sandbox with its address", Effect{Sandbox: "ready", State: StateRunning}, true},
		{"a sandbox without its address", Effect{Sandbox: "bare", State: StateRunning}, false},
		{"a sandbox on the host's network", Effect{Sandbox: "host", State: StateRunning}, true},
		{"a sandbox that died since", Effect{Sandbox: "down", State: StateRunning}, true},
		{"a sandbox that is not there yet", Effect{Sandbox: "new", State: StateRunning}, false},
		{"a sandbox that was stopped", Effect{Sandbox: "down", State: StateExited}, true},
		{"a sandbox that was stopped and is ready", Effect{Sandbox: "ready", State: StateExited}, false},
		{"a sandbox that was removed", Effect{Sandbox: "old", Gone: true}, true},
		{"a sandbox that was removed and is still there", Effect{Sandbox: "down", Gone: true}, false},
	} {
		if got := c.e.ShownBy(have); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
