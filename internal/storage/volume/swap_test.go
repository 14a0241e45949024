package volume

import (
	"context"
	"log/slog"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/storage/mount"
)

type nodeRecorder struct {
	recorder
	node []string
}

func (r *nodeRecorder) Node(eventType, reason, message string) {
	r.node = append(r.node, eventType+" "+reason+" "+message)
}

func TestManagerWarnsWhereSecretsMayReachADisk(t *testing.T) {
	for _, may := range []bool{true, false} {
		events := &nodeRecorder{}
		m := New(Config{RootDir: t.TempDir(), Guard: mount.NewGuard(), Events: events, MaySwap: func() (bool, error) { return may, nil },
			OnChange: func(types.UID) {}, Log: slog.New(slog.DiscardHandler)})
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if err := m.Run(ctx); err != nil {
			t.Fatal(err)
		}
		var want []string
		if may {
			want = []string{"Warning PossibleMemoryBackedVolumesOnDisk The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, emptyDirs, etc.) might be swapped to disk and should no longer be considered secure."}
		}
		if !slices.Equal(events.node, want) {
			t.Errorf("events of the node are %q, want %q", events.node, want)
		}
	}
}
