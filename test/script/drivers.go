package script

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson/test/kit/dradriver"
)

// drivers are the DRA drivers of the node, by name. Claims stay prepared while a driver is stopped.
type drivers struct {
	mu   sync.Mutex
	all  map[string]*dradriver.Driver
	hang map[string]chan struct{}
}

// driver starts a driver. The agent finds it by a socket in a directory on the disk; all messages
// go through memory.
func (r *Run) driver(args []string) error {
	name, path := args[0], r.driverSocket(args[0])
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	l, err := r.sockets.Listen(path)
	if err != nil {
		return err
	}
	r.drivers.mu.Lock()
	defer r.drivers.mu.Unlock()
	if r.drivers.all == nil {
		r.drivers.all, r.drivers.hang = map[string]*dradriver.Driver{}, map[string]chan struct{}{}
	}
	d := r.drivers.all[name]
	if d == nil {
		d = dradriver.New(dradriver.Config{Name: name, Done: r.done})
		r.drivers.all[name] = d
	}
	d.Serve(l)
	return unix.Mknod(path, unix.S_IFSOCK|0o600, 0)
}

func (w *World) driverSocket(name string) string {
	return w.Path("kubelet/plugins_registry/" + name + ".sock")
}

// undriver stops a driver. It can be started again.
func (r *Run) undriver(args []string) error {
	d, err := r.drivers.named(args[0])
	if err != nil {
		return err
	}
	d.Stop()
	return os.Remove(r.driverSocket(args[0]))
}

func (d *drivers) named(name string) (*dradriver.Driver, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if one := d.all[name]; one != nil {
		return one, nil
	}
	return nil, fmt.Errorf("there is no driver %s", name)
}

func (d *drivers) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, one := range d.all {
		one.Stop()
	}
}

// driverFault makes calls to a driver fail or hang, or ends that.
func (r *Run) driverFault(args []string) error {
	d, err := r.drivers.named(args[0])
	if err != nil {
		return err
	}
	r.drivers.mu.Lock()
	defer r.drivers.mu.Unlock()
	if c := r.drivers.hang[args[0]]; c != nil {
		close(c)
		delete(r.drivers.hang, args[0])
	}
	var f dradriver.Fault
	switch what, text, _ := strings.Cut(args[2], "="); what {
	case "hang":
		f.Hang = make(chan struct{})
		r.drivers.hang[args[0]] = f.Hang
	case "fail":
		f.Err = errors.New(text)
	case "works":
	default:
		return fmt.Errorf("a call works, hangs or fails, not %q", what)
	}
	d.Fault(args[1], f)
	return nil
}

// reserve allocates a device of a driver for a claim and reserves the claim for these pods, as the scheduler does.
func (r *Run) reserve(args []string) error {
	ctx, claims := context.Background(), r.API.ResourceV1().ResourceClaims(Namespace)
	claim, err := claims.Get(ctx, args[0], metav1.GetOptions{})
	if err != nil {
		return err
	}
	chosen := resourcev1.DeviceRequestAllocationResult{Request: "one", Driver: args[1], Pool: "pool", Device: "dev-0"}
	claim.Status.Allocation = &resourcev1.AllocationResult{
		Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{chosen}},
	}
	claim.Status.ReservedFor = nil
	for _, name := range args[2:] {
		p := r.Server.Pod(Namespace, name)
		if p == nil {
			return fmt.Errorf("there is no pod %s", name)
		}
		claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{
			Resource: corev1.ResourcePods.String(), Name: name, UID: p.UID})
	}
	_, err = claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	return err
}

// showPrepared shows which claims drivers have prepared.
func (r *Run) showPrepared() string {
	r.drivers.mu.Lock()
	defer r.drivers.mu.Unlock()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(r.drivers.all)) {
		for _, claim := range r.drivers.all[name].Prepared() {
			fmt.Fprintf(&b, "%s %s\n", name, claim)
		}
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

// showDriverCalls shows the calls to drivers, those for each claim in order.
func (r *Run) showDriverCalls() string {
	r.drivers.mu.Lock()
	defer r.drivers.mu.Unlock()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(r.drivers.all)) {
		calls := r.drivers.all[name].Calls()
		slices.SortStableFunc(calls, func(a, b dradriver.Call) int { return strings.Compare(a.Claim, b.Claim) })
		for _, c := range calls {
			fmt.Fprintf(&b, "%s %s %s\n", c.Method, name, c.Claim)
		}
	}
	return b.String()
}
