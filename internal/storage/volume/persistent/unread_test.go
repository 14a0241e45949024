package persistent

import (
	"errors"
	"log/slog"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/storage/mount"
)

// spoilt is a plugin one of whose records cannot be read.
type spoilt struct{ Plugin }

func (spoilt) Name() string { return pluginName }
func (spoilt) Devices() ([]Device, error) {
	return []Device{{Traits: Traits{ID: "known", Attach: true}}}, errors.New("read record /x: unexpected end")
}

// told keeps what is said about the node.
type told struct{ events []string }

func (*told) Pod(*v1.Pod, string, string, string, string) {}
func (e *told) Node(kind, reason, message string) {
	e.events = append(e.events, kind+" "+reason+": "+message)
}

var _ pod.Events = (*told)(nil)

// TestARecordThatCannotBeReadIsTold keeps all in use that the node shows, and has
// whoever looks at the node know why, once.
func TestARecordThatCannotBeReadIsTold(t *testing.T) {
	events := &told{}
	v := New(Config{RootDir: t.TempDir(), Guard: mount.NewGuard(), Events: events, Plugins: []Plugin{spoilt{}}, Log: slog.New(slog.DiscardHandler),
		Node: func() v1.NodeStatus { return v1.NodeStatus{VolumesInUse: []v1.UniqueVolumeName{"known", "other"}} }})
	for range 2 {
		if got, want := v.InUse(), []v1.UniqueVolumeName{"known", "other"}; !slices.Equal(got, want) {
			t.Errorf("in use %v, want %v", got, want)
		}
	}
	if want := []string{"Warning StateFileUnusable: Volumes stay in use until this can be read and the agent is started anew: read " + pluginName + ": read record /x: unexpected end"}; !slices.Equal(events.events, want) {
		t.Errorf("told %q, want %q", events.events, want)
	}
}
