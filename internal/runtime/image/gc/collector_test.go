package gc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/host/machine"
	"keelson/test/kit/eventlog"
	"keelson/test/kit/parity"
)

// fakeNode is a disk filled by images. Removing one frees its bytes.
type fakeNode struct {
	mu       sync.Mutex
	images   map[string]*runtimeapi.Image
	used     []string
	capacity uint64
	other    uint64 // bytes that are not images
	stuck    map[string]bool
	broken   error
	events   eventlog.Log
	left     []string
	lists    int
}

func (f *fakeNode) ListImages(context.Context, *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lists++
	if f.broken != nil {
		return nil, f.broken
	}
	resp := &runtimeapi.ListImagesResponse{}
	for _, img := range f.images {
		resp.Images = append(resp.Images, img)
	}
	return resp, nil
}

func (f *fakeNode) RemoveImage(
	_ context.Context, r *runtimeapi.RemoveImageRequest,
) (*runtimeapi.RemoveImageResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := r.GetImage().GetImage()
	if f.stuck[id] {
		return nil, fmt.Errorf("remove image %s: read-only", id)
	}
	delete(f.images, id)
	return &runtimeapi.RemoveImageResponse{}, nil
}

func (f *fakeNode) ImageFsInfo(
	context.Context, *runtimeapi.ImageFsInfoRequest,
) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{
		ImageFilesystems: []*runtimeapi.FilesystemUsage{
			{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/images"}},
		},
		ContainerFilesystems: []*runtimeapi.FilesystemUsage{
			{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/containers"}}, // removing images frees nothing here
		},
	}, nil
}

func (f *fakeNode) filesystem(path string) (machine.Filesystem, error) {
	if path != "/images" {
		return machine.Filesystem{}, fmt.Errorf("no file system at %q", path)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	used := f.other
	for _, img := range f.images {
		used += img.Size
	}
	return machine.Filesystem{Capacity: f.capacity, Available: f.capacity - min(used, f.capacity)}, nil
}

func (f *fakeNode) inUse(context.Context) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.used), nil
}

func (f *fakeNode) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// have returns the images that are present.
func (f *fakeNode) have() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for id := range f.images {
		out = append(out, id)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func (f *fakeNode) add(id string, size uint64) *runtimeapi.Image {
	img := &runtimeapi.Image{Id: id, Size: size}
	f.set(func() { f.images[id] = img })
	return img
}

// overTime runs a collector on a disk of 1000 bytes in virtual time. The first pass is at time
// zero.
func overTime(t *testing.T, setup func(*fakeNode, *Config), test func(t *testing.T, f *fakeNode, c *Collector)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeNode{images: map[string]*runtimeapi.Image{}, capacity: 1000, stuck: map[string]bool{}}
		ready := make(chan struct{})
		close(ready)
		cfg := Config{
			Runtime:    f,
			Filesystem: f.filesystem,
			InUse:      f.inUse,
			After:      ready,
			High:       85,
			Low:        80,
			MinAge:     2 * time.Minute,
			OnPass: func(images []*runtimeapi.Image, _ time.Time) {
				f.set(func() {
					f.left = nil
					for _, img := range images {
						f.left = append(f.left, img.Id)
					}
					slices.Sort(f.left)
				})
			},
			Events:   &f.events,
			Registry: prometheus.NewRegistry(),
			Log:      slog.New(slog.DiscardHandler),
			Now:      time.Now,
		}
		setup(f, &cfg)
		c, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		synctest.Wait()
		test(t, f, c)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// counted returns how many images were removed for a reason, from the metric.
func counted(t *testing.T, c *Collector, reason string) float64 {
	t.Helper()
	families, err := c.cfg.Registry.(*prometheus.Registry).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "kubelet_image_garbage_collected_total" && m.GetLabel()[0].GetValue() == reason {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func TestDiskUsageAboveThreshold(t *testing.T) {
	parity.ProvesPart(t, 4, "RT-34")
	overTime(t, func(f *fakeNode, _ *Config) {
		f.add("kept", 300)
		f.add("a", 100)
		f.add("b", 100)
		f.add("pinned", 100).Pinned = true
		f.used = []string{"kept"}
	}, func(t *testing.T, f *fakeNode, c *Collector) {
		if got := f.have(); got != "a b kept pinned" {
			t.Fatalf("on a disk that is not full: %s are left", got)
		}
		f.set(func() { f.used = []string{"kept", "a"} })
		time.Sleep(period)
		synctest.Wait()
		f.set(func() { f.used = []string{"kept"}; f.other = 260 }) // 86 % used
		time.Sleep(period)
		synctest.Wait()
		// One image brings it to 76 %. b was never used, a was.
		if got := f.have(); got != "a kept pinned" {
			t.Errorf("after the pass %s are left, want the one gone that was never used", got)
		}
		if got := strings.Join(f.left, " "); got != "a kept pinned" {
			t.Errorf("OnPass got %s", got)
		}
		if e := f.events.TakeTexts(); len(e) > 0 {
			t.Errorf("events: %v", e)
		}
		if n := counted(t, c, "space"); n != 1 {
			t.Errorf("%v images counted as removed for space", n)
		}
	})
}

// Which images are present and in use is checked every five minutes, even if none is to be removed.
func TestImageDetectionPeriod(t *testing.T) {
	parity.ProvesPart(t, 4, "RT-34")
	parity.ProvesPart(t, 4, "RT-35")
	overTime(t, func(f *fakeNode, _ *Config) { f.add("a", 100) }, func(t *testing.T, f *fakeNode, _ *Collector) {
		for i, at := range []time.Duration{
			0,
			5*time.Minute - time.Second,
			time.Second,
			5*time.Minute - time.Second,
			time.Second,
		} {
			time.Sleep(at)
			synctest.Wait()
			f.mu.Lock()
			if want := []int{1, 1, 2, 2, 3}[i]; f.lists != want {
				t.Errorf("look %d: the images were listed %d times, want %d", i, f.lists, want)
			}
			f.mu.Unlock()
		}
	})
}

func TestFreedSpaceInsufficient(t *testing.T) {
	parity.ProvesPart(t, 2, "RT-37")
	short := "Insufficient free disk space on the node's image filesystem (95% of 1000 B used). " +
		"Failed to free sufficient space by deleting unused images (freed 50 bytes). " +
		"Investigate disk usage, as it could be used by active images, logs, volumes, or other data."
	overTime(t, func(f *fakeNode, _ *Config) {
		f.add("a", 50)
		f.other = 900
	}, func(t *testing.T, f *fakeNode, _ *Collector) {
		if got, want := f.events.TakeTexts(), []string{"Warning FreeDiskSpaceFailed " + short}; !slices.Equal(
			got,
			want,
		) {
			t.Errorf("after the first pass: %q", got)
		}
		time.Sleep(period)
		synctest.Wait()
		short = strings.NewReplacer("(95%", "(90%", "freed 50", "freed 0").Replace(short)
		if got, want := f.events.TakeTexts(), []string{
			"Warning FreeDiskSpaceFailed " + short,
			"Warning ImageGCFailed " + short,
		}; !slices.Equal(got, want) {
			t.Errorf("after the second pass: %q", got)
		}
		f.set(func() { f.other = 100 })
		time.Sleep(period)
		synctest.Wait()
		f.set(func() { f.other = 900 })
		time.Sleep(period)
		synctest.Wait()
		if got := f.events.TakeTexts(); len(got) != 1 {
			t.Errorf("events after the first failure: %q, want none", got)
		}
	})
}

func TestFailedPasses(t *testing.T) {
	parity.Proves(t, "SRV-64")
	parity.ProvesPart(t, 2, "RT-37")
	t.Run("no capacity", func(t *testing.T) {
		overTime(t, func(f *fakeNode, _ *Config) { f.capacity = 0 }, func(t *testing.T, f *fakeNode, _ *Collector) {
			want := []string{"Warning InvalidDiskCapacity invalid capacity 0 on image filesystem"}
			if got := f.events.TakeTexts(); !slices.Equal(got, want) {
				t.Errorf("events: %q", got)
			}
		})
	})
	t.Run("a runtime that does not answer", func(t *testing.T) {
		overTime(t, func(f *fakeNode, _ *Config) { f.broken = errors.New("list images: down") },
			func(t *testing.T, f *fakeNode, _ *Collector) {
				time.Sleep(period)
				synctest.Wait()
				if got, want := f.events.TakeTexts(), []string{"Warning ImageGCFailed list images: down"}; !slices.Equal(got,
					want) {
					t.Errorf("events: %q", got)
				}
			})
	})
	t.Run("an image that cannot be removed does not save the next", func(t *testing.T) {
		overTime(t, func(f *fakeNode, _ *Config) {
			f.add("a", 300)
			f.add("b", 300)
			f.add("c", 300)
			f.stuck["a"] = true
		}, func(t *testing.T, f *fakeNode, c *Collector) {
			if got := f.have(); got != "a c" {
				t.Errorf("%s are left", got)
			}
			_, err := c.DeleteUnused(t.Context())
			if want := "wanted to free 18446744073709551615 bytes, but freed 300 bytes space with errors in image deletion: " +
				"remove image a: read-only"; err == nil ||
				err.Error() != want {
				t.Errorf("DeleteUnused = %v, want %s", err, want)
			}
		})
	})
}

func TestImageMaximumAge(t *testing.T) {
	parity.ProvesPart(t, 2, "RT-36")
	parity.ProvesPart(t, 2, "RT-38")
	t.Run("a new image is kept", func(t *testing.T) {
		overTime(t, func(f *fakeNode, _ *Config) { f.add("old", 100) }, func(t *testing.T, f *fakeNode, c *Collector) {
			time.Sleep(period - time.Minute)
			f.add("new", 100)
			if _, err := c.DeleteUnused(t.Context()); err != nil || f.have() != "new" {
				t.Errorf("%s are left, %v", f.have(), err)
			}
			time.Sleep(2 * time.Minute)
			if freed, err := c.DeleteUnused(t.Context()); err != nil || freed != 100 || f.have() != "" {
				t.Errorf("%s are left, %d freed, %v", f.have(), freed, err)
			}
		})
	})
	t.Run("an unused image exceeds the maximum age", func(t *testing.T) {
		overTime(t, func(f *fakeNode, c *Config) {
			c.MaxAge, c.High = time.Hour, 100
			f.add("kept", 10)
			f.add("old", 10)
			f.used = []string{"kept"}
		}, func(t *testing.T, f *fakeNode, c *Collector) {
			time.Sleep(time.Hour)
			synctest.Wait()
			if got := f.have(); got != "kept old" {
				t.Errorf("%s are left after an hour", got)
			}
			time.Sleep(period)
			synctest.Wait()
			if got := f.have(); got != "kept" {
				t.Errorf("%s are left", got)
			}
			if n := counted(t, c, "age"); n != 1 {
				t.Errorf("%v images counted as removed for age", n)
			}
		})
	})
}

func TestFailedRemovalDoesNotBlockSpaceCollection(t *testing.T) {
	overTime(t, func(f *fakeNode, c *Config) {
		c.MaxAge = time.Hour
		f.add("old", 100)
		f.stuck["old"] = true
	}, func(t *testing.T, f *fakeNode, c *Collector) {
		time.Sleep(time.Hour)
		f.add("new", 500)
		time.Sleep(2 * period)
		f.set(func() { f.other = 300 }) // 90 % used
		time.Sleep(period)
		synctest.Wait()
		if got := f.have(); got != "old" {
			t.Errorf("%s are left", got)
		}
		if got, want := f.events.TakeTexts(), "Warning ImageGCFailed remove image old: read-only"; len(got) == 0 ||
			got[len(got)-1] != want {
			t.Errorf("events: %q", got)
		}
	})
}

func TestGarbageCollectionDisabled(t *testing.T) {
	overTime(t, func(_ *fakeNode, c *Config) { c.High = 100 }, func(t *testing.T, f *fakeNode, _ *Collector) {
		time.Sleep(time.Hour)
		if f.lists > 0 {
			t.Errorf("the images were listed %d times", f.lists)
		}
	})
}

func TestGarbageCollectionWaitsForImagesInUse(t *testing.T) {
	overTime(t, func(f *fakeNode, c *Config) {
		c.After = make(chan struct{})
		f.add("a", 1000)
	}, func(t *testing.T, f *fakeNode, _ *Collector) {
		time.Sleep(time.Hour)
		if f.have() != "a" {
			t.Error("an image was removed before it was known whether it is in use")
		}
	})
}
