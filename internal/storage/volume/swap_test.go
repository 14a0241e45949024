package volume

import (
	"context"
	"log/slog"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/storage/mount"
	"keelson/test/kit/eventlog"
)

func TestManagerSwapWarning(t *testing.T) {
	for _, may := range []bool{true, false} {
		events := &eventlog.Log{}
		m := New(Config{
			RootDir:  t.TempDir(),
			Guard:    mount.NewGuard(),
			Events:   events,
			MaySwap:  func() (bool, error) { return may, nil },
			OnChange: func(types.UID) {},
			Log:      slog.New(slog.DiscardHandler),
		})
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if err := m.Run(ctx); err != nil {
			t.Fatal(err)
		}
		var want []string
		if may {
			want = []string{"node Warning PossibleMemoryBackedVolumesOnDisk The tmpfs noswap option is not supported. " +
				"Memory-backed volumes (e.g. secrets, emptyDirs, etc.) might be swapped to disk and should no longer be " +
				"considered secure."}
		}
		if got := events.Lines(); !slices.Equal(got, want) {
			t.Errorf("events of the node are %q, want %q", got, want)
		}
	}
}
