package csi

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"keelson/internal/pods/pod"
	"keelson/test/kit/csidriver"
	"keelson/test/kit/parity"
)

// askedDrivers are drivers that count their calls. One of them hangs.
type askedDrivers struct {
	mu    sync.Mutex
	names []string
	asked map[string]int
	fail  map[string]error
}

func (d *askedDrivers) Names() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.names)
}

func (d *askedDrivers) Refresh(ctx context.Context, name string) error {
	d.mu.Lock()
	d.asked[name]++
	err := d.fail[name]
	d.mu.Unlock()
	if name == "panics" {
		panic("at this driver")
	}
	if name == "hangs" {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

// count returns the number of calls since the last count.
func (d *askedDrivers) count(name string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.asked[name]
	d.asked[name] = 0
	return n
}

// Drivers are called with the periods in their CSIDriver objects, and not at all without one.
func TestRefresherPeriods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &askedDrivers{asked: map[string]int{}, fail: map[string]error{"fails": errors.New("busy")}}
		var mu sync.Mutex
		seconds := map[string]int64{"minute": 60, "hangs": 10, "fails": 20, "hasty": 1, "panics": 30}
		set := func(name string, n int64) {
			mu.Lock()
			defer mu.Unlock()
			seconds[name] = n
		}
		r := NewRefresher(RefresherConfig{
			Drivers: d,
			Log:     slog.New(slog.DiscardHandler),
			Object: func(_ context.Context, name string) (*storagev1.CSIDriver, error) {
				mu.Lock()
				defer mu.Unlock()
				switch n := seconds[name]; {
				case name == "none":
					return nil, nil
				case n == 0:
					return &storagev1.CSIDriver{}, nil
				default:
					return &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{NodeAllocatableUpdatePeriodSeconds: &n}},
						nil
				}
			},
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		d.mu.Lock()
		d.names = []string{"minute", "hangs", "fails", "hasty", "silent", "none", "panics"}
		d.mu.Unlock()
		r.Changed()
		synctest.Wait()
		time.Sleep(10*time.Minute + time.Second)
		synctest.Wait()
		for name, want := range map[string]int{
			"minute": 10, "hangs": 1, "fails": 30, "hasty": 60, "silent": 0, "none": 0, "panics": 20,
		} {
			if got := d.count(name); got != want {
				t.Errorf("%s was called %d times in ten minutes, want %d", name, got, want)
			}
		}

		// A volume could not be attached: called at once, but only drivers with a period.
		r.Exhausted("minute")
		r.Exhausted("silent")
		synctest.Wait()
		if m, s := d.count("minute"), d.count("silent"); m != 1 || s != 0 {
			t.Errorf("calls after a failure: %d, and %d to the driver without a period", m, s)
		}

		// Objects change, and a driver deregisters.
		set("silent", 60)
		set("minute", 600)
		d.mu.Lock()
		d.names = []string{"minute", "silent"}
		d.asked = map[string]int{}
		d.mu.Unlock()
		r.Changed()
		time.Sleep(10*time.Minute + time.Second)
		synctest.Wait()
		for name, want := range map[string]int{"minute": 1, "silent": 10, "hasty": 0, "fails": 0} {
			if got := d.count(name); got != want {
				t.Errorf("%s was called %d times in ten minutes after the change, want %d", name, got, want)
			}
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// The CSINode is updated with the new response.
func TestRefresherUpdatesCSINode(t *testing.T) {
	parity.Proves(t, "PLUG-18")
	api := &fakeNode{node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: "u"}}}
	n := newTestNode(t, func(c *csidriver.Config) { c.Max = 25 })
	s := startShown(t, api)
	drivers := NewDrivers(s, nil, slog.New(slog.DiscardHandler))
	r := NewRefresher(RefresherConfig{
		Drivers: drivers,
		Log:     slog.New(slog.DiscardHandler),
		Object: func(context.Context, string) (*storagev1.CSIDriver, error) {
			return &storagev1.CSIDriver{
				Spec: storagev1.CSIDriverSpec{NodeAllocatableUpdatePeriodSeconds: ptr.To[int64](10)},
			}, nil
		},
	})
	drivers.OnChange(r.Changed)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()
	defer func() { stop(); <-done }()
	must(t, drivers.Register(t.Context(), driverName, n.driver.Socket(), []string{"1.0.0"}))
	shown := func() int32 {
		_, csi := api.state()
		for _, d := range csi.Spec.Drivers {
			if d.Name == driverName && d.Allocatable != nil {
				return *d.Allocatable.Count
			}
		}
		return -1
	}
	if got := shown(); got != 25 {
		t.Errorf("at first %d are shown", got)
	}
	n.driver.SetMax(3)
	n.until("the new number by the period", func() bool { return shown() == 3 })
	n.driver.SetMax(2)
	r.Exhausted(driverName)
	n.until("the new number after a failure", func() bool { return shown() == 2 })
	n.driver.SetMax(0) // no limit
	r.Exhausted(driverName)
	n.until("no number", func() bool { return shown() == -1 })
}

// A pod is rejected if the node has reached the volume limit and the CSIDriver sets
// nodeAllocatableUpdatePeriodSeconds; for other attach errors the pod waits.
func TestAttachLimit(t *testing.T) {
	parity.Proves(t, "SRC-50")
	n := newTestNode(t, nil)
	n.volumeOf("data", nil)
	name := AttachmentName("test-data", driverName, nodeName)
	fails := func(code *int32) {
		n.api.change(func() {
			n.api.attach[name] = &storagev1.VolumeAttachment{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Status: storagev1.VolumeAttachmentStatus{
					AttachError: &storagev1.VolumeError{Message: "no slot is free", ErrorCode: code}},
			}
		})
	}
	fails(ptr.To(int32(codes.Internal)))
	p := podWith("a", "data")
	n.Want(p)
	n.until("a look at the attachment", func() bool { return n.api.asked(name) > 0 })
	if s := n.State(p.UID); s.Ready || s.Err != nil {
		t.Errorf("while the attacher tries: %+v", s)
	}
	fails(nil)
	n.Again(p.UID)
	fails(ptr.To(int32(codes.ResourceExhausted)))
	looks := n.api.asked(name)
	n.until("a read of the attachment for a driver without a period", func() bool {
		n.Again(p.UID)
		return n.api.asked(name) > looks
	})
	n.driverObject(func(d *storagev1.CSIDriverSpec) { d.AttachRequired = nil })
	looks = n.api.asked(name)
	n.until("a look at it with the driver's object", func() bool { n.Again(p.UID); return n.api.asked(name) > looks+1 })
	if s := n.State(p.UID); s.Err != nil || n.exhausted.Load() > 0 {
		t.Errorf("a driver without a period: %+v, exhausted %d times", s, n.exhausted.Load())
	}
	n.driverObject(func(d *storagev1.CSIDriverSpec) {
		d.AttachRequired, d.NodeAllocatableUpdatePeriodSeconds = nil, ptr.To[int64](60)
	})
	n.until("the refusal", func() bool { n.Again(p.UID); return n.State(p.UID).Err != nil })
	var no *pod.Rejection
	err := n.State(p.UID).Err
	if !errors.As(err, &no) || no.Reason != "VolumeAttachmentLimitExceeded" ||
		no.Message != "Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[v-data], "+
			"unattached volumes=[v-data], failed to process volumes=[]: no slot is free" {
		t.Errorf("refused with %v", err)
	}
	if got := n.exhausted.Load(); got == 0 {
		t.Error("Exhausted was not called")
	}
	if n.events.Has("rejecting pod") {
		t.Errorf("events: %v, want none: the rejection has its own", n.events.Lines())
	}
	if got := n.driver.Methods(); len(got) > 0 {
		t.Errorf("the driver was called: %v", got)
	}
	n.release(p)
	n.idle()
}
