package persistent

import (
	"errors"
	"log/slog"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/storage/mount"
	"keelson/test/kit/eventlog"
)

// spoilt is a plugin with an unreadable record.
type spoilt struct{ Plugin }

func (spoilt) Name() string { return pluginName }
func (spoilt) Devices() ([]Device, error) {
	return []Device{{Traits: Traits{ID: "known", Attach: true}}}, errors.New("read record /x: unexpected end")
}

// TestUnreadableRecordEvent: all volumes of the node status stay in use, and one event on the node
// explains it.
func TestUnreadableRecordEvent(t *testing.T) {
	events := &eventlog.Log{}
	v := New(Config{
		RootDir: t.TempDir(),
		Guard:   mount.NewGuard(),
		Events:  events,
		Plugins: []Plugin{spoilt{}},
		Log:     slog.New(slog.DiscardHandler),
		Node:    func() v1.NodeStatus { return v1.NodeStatus{VolumesInUse: []v1.UniqueVolumeName{"known", "other"}} },
	})
	for range 2 {
		if got, want := v.InUse(), []v1.UniqueVolumeName{"known", "other"}; !slices.Equal(got, want) {
			t.Errorf("in use %v, want %v", got, want)
		}
	}
	if want := []string{
		"node Warning StateFileUnusable Volumes stay in use until this can be read and the agent is restarted: read " +
			pluginName + ": read record /x: unexpected end",
	}; !slices.Equal(events.Lines(), want) {
		t.Errorf("events %q, want %q", events.Lines(), want)
	}
}
