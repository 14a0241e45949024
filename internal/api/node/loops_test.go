package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/test/kit/eventlog"
	"keelson/test/kit/parity"
)

type rig struct {
	*Node
	api     *fakeServer
	runtime *fakeRuntime
	events  *eventlog.Log
	log     *strings.Builder
	stop    func()
}

// run starts a node in virtual time.
func run(t *testing.T, api *fakeServer, change func(*Config, *rig)) *rig {
	t.Helper()
	r := &rig{api: api, runtime: &fakeRuntime{}, events: &eventlog.Log{}, log: &strings.Builder{}}
	cfg := Config{
		Identity: Identity{Name: "node1", Hostname: "node1", OS: "linux", Arch: "amd64"},
		Runtime:  r.runtime,
		Events:   r.events,
		Log:      slog.New(slog.NewTextHandler(io.Writer(r.log), nil)),
		Size: Size{
			Machine: upstreamMachine(),
			RootFS:  fstest.MapFS{},
			RootDir: t.TempDir(),
			MaxPods: 110,
		},
		Reported: Reported{
			Version:   "v1.36.3",
			Port:      10250,
			MaxImages: 50,
		},
		Intervals: Intervals{
			UpdateEvery:   10 * time.Second,
			ReportEvery:   5 * time.Minute,
			LeaseDuration: 40 * time.Second,
		},
		Register: true,
	}
	if api != nil {
		cfg.API = &API{Nodes: fakeNodes{api}, Leases: fakeLeases{api}, CloseConnections: api.closeConnections}
	}
	if change != nil {
		change(&cfg, r)
	}
	n, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.Node = n
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	r.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	}
	return r
}

func readyOf(n *v1.Node) v1.NodeCondition { return condition(n.Status, v1.NodeReady) }

func TestCreateNode(t *testing.T) {
	parity.Proves(t, "NODE-10")
	parity.ProvesPart(t, 3, "NODE-01")
	parity.ProvesPart(t, 2, "NODE-15")
	parity.ProvesPart(t, 2, "NODE-39")
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(1234567 * time.Microsecond) // the lease's time has microseconds
		r := run(t, newServer(), nil)
		defer r.stop()
		<-r.Registered()
		synctest.Wait()
		n := r.api.snapshot()
		if c := readyOf(n); c.Status != v1.ConditionTrue || c.Reason != "KubeletReady" {
			t.Errorf("Ready = %+v", c)
		}
		if n.Status.NodeInfo.ContainerRuntimeVersion != "containerd://2.4.2" ||
			n.Labels["kubernetes.io/hostname"] != "node1" {
			t.Errorf("node = %+v", n)
		}
		l := r.api.lease
		if l == nil || l.Namespace != "kube-node-lease" || l.Name != "node1" || *l.Spec.HolderIdentity != "node1" ||
			*l.Spec.LeaseDurationSeconds != 40 ||
			!l.Spec.RenewTime.Time.Equal(time.Now()) || len(l.OwnerReferences) != 1 ||
			l.OwnerReferences[0] != (metav1.OwnerReference{
				APIVersion: "v1",
				Kind:       "Node",
				Name:       "node1",
				UID:        "node-uid",
			}) {
			t.Errorf("lease = %+v", l)
		}
		if r.events.Count("Starting") != 1 || !r.reported("Normal Starting Starting kubelet.") ||
			r.events.Count("NodeHasSufficientMemory") != 1 {
			t.Errorf("events = %v", r.events.Texts())
		}
		if r.Node.Node().UID != "node-uid" {
			t.Error("the agent does not know its own node")
		}
	})
}

func TestNoUpdatesWithoutChanges(t *testing.T) {
	parity.ProvesPart(t, 2, "NODE-12")
	parity.ProvesPart(t, 5, "NODE-40")
	synctest.Test(t, func(t *testing.T) {
		r := run(t, newServer(), nil)
		defer r.stop()
		pass(30 * time.Minute)
		if n := r.api.count("patch status"); n < 4 || n > 8 {
			t.Errorf("%d patches in 30 minutes without news, want one in 5 minutes", n)
		}
		if n := r.api.count("update lease"); n < 170 || n > 181 {
			t.Errorf("%d renewals in 30 minutes, want one in 10 s", n)
		}
		if n := r.api.count("get node") + r.api.count("get lease"); n > 2 {
			t.Errorf("%d reads without need", n)
		}
		if n := r.runtime.lists; n > 61 {
			t.Errorf("images listed %d times in 30 minutes", n)
		}
		if r.events.Count("NodeReady")+r.events.Count("NodeNotReady") != 0 {
			t.Errorf("events = %v", r.events.Texts())
		}
	})
}

func TestImageListInterval(t *testing.T) {
	parity.ProvesPart(t, 4, "RT-35")
	synctest.Test(t, func(t *testing.T) {
		r := run(t, newServer(), nil)
		defer r.stop()
		synctest.Wait()
		listed := func() int {
			r.runtime.mu.Lock()
			defer r.runtime.mu.Unlock()
			return r.runtime.lists
		}
		if n := listed(); n != 1 {
			t.Errorf("listed %d times at the start", n)
		}
		time.Sleep(10*time.Minute + time.Second)
		synctest.Wait()
		// The status is computed every ten seconds with jitter.
		if n := listed() - 1; n < 18 || n > 20 {
			t.Errorf("listed %d times in ten minutes, want 20 at most, and 18 at least", n)
		}
	})
}

func TestRuntimeDown(t *testing.T) {
	parity.ProvesPart(t, 2, "NODE-17")
	parity.ProvesPart(t, 2, "NODE-19")
	synctest.Test(t, func(t *testing.T) {
		r := run(t, newServer(), nil)
		defer r.stop()
		<-r.Registered()
		pass(time.Minute)
		r.runtime.set(true)
		pass(25 * time.Second)
		if readyOf(r.api.snapshot()).Status != v1.ConditionTrue {
			t.Error("not ready before the runtime was gone for 30 s")
		}
		pass(12 * time.Second)
		if c := readyOf(r.api.snapshot()); c.Status != v1.ConditionFalse || c.Message != "container runtime is down" {
			t.Errorf("Ready = %+v", c)
		}
		r.runtime.set(false)
		pass(2 * time.Second)
		if c := readyOf(r.api.snapshot()); c.Status != v1.ConditionTrue {
			t.Errorf("2 s after the runtime came back, Ready = %+v", c)
		}
		if r.events.Count("NodeNotReady") != 1 || r.events.Count("NodeReady") != 1 ||
			!r.reported("Normal NodeNotReady Node node1 status is now: NodeNotReady") ||
			!r.reported("Normal NodeReady Node node1 status is now: NodeReady") ||
			!r.reported("Normal NodeHasSufficientMemory Node node1 status is now: NodeHasSufficientMemory") {
			t.Errorf("events = %v", r.events.Texts())
		}
		if n := strings.Count(r.log.String(), "container runtime does not respond"); n != 1 {
			t.Errorf("logged %d times:\n%s", n, r.log)
		}
	})
}

// TestHangingRuntimeDoesNotBlock: while calls for the runtime's version and images hang, the status is still updated
// with other conditions and with the state of the runtime. It keeps the runtime's last responses. A call is not
// repeated before the pending one returns.
func TestHangingRuntimeDoesNotBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pressed atomic.Bool
		r := run(t, newServer(), func(c *Config, r *rig) {
			r.runtime.images = []*runtimeapi.Image{{Id: "i", RepoTags: []string{"web:1"}, Size: 7}}
			c.Pressures = func(context.Context) []v1.NodeConditionType {
				if pressed.Load() {
					return []v1.NodeConditionType{v1.NodeDiskPressure}
				}
				return nil
			}
		})
		defer r.stop()
		<-r.Registered()
		pass(time.Minute)
		back := r.runtime.hang()
		pass(time.Minute) // both calls hang
		asked := r.runtime.lists
		pressed.Store(true)
		r.Wake()
		pass(time.Second)
		n := r.api.snapshot()
		if c := condition(n.Status, v1.NodeDiskPressure); c.Status != v1.ConditionTrue {
			t.Errorf("a second after it began, DiskPressure = %+v", c)
		}
		if c := readyOf(n); c.Status != v1.ConditionFalse || c.Message != "container runtime is down" {
			t.Errorf("Ready = %+v", c)
		}
		if len(n.Status.Images) != 1 || n.Status.NodeInfo.ContainerRuntimeVersion != "containerd://2.4.2" {
			t.Errorf("images %v of %s", n.Status.Images, n.Status.NodeInfo.ContainerRuntimeVersion)
		}
		pass(10 * time.Minute)
		if r.runtime.lists != asked {
			t.Errorf("asked %d times more while it hung", r.runtime.lists-asked)
		}
		r.runtime.mu.Lock()
		r.runtime.images = append(r.runtime.images, &runtimeapi.Image{Id: "j", RepoTags: []string{"db:1"}, Size: 8})
		r.runtime.mu.Unlock()
		back()
		pass(time.Second)
		n = r.api.snapshot()
		if c := readyOf(n); c.Status != v1.ConditionTrue || len(n.Status.Images) != 2 {
			t.Errorf("a second after it came back, Ready = %+v, images %v", c, n.Status.Images)
		}
		if c := strings.Count(r.log.String(), "no response yet"); c != 2 {
			t.Errorf("logged %d times:\n%s", c, r.log)
		}
	})
}

func TestOnNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns atomic.Int32
		r := run(t, nil, func(c *Config, r *rig) {
			r.runtime.noNetwork.Store(true)
			c.OnNetwork = func() { turns.Add(1) }
		})
		defer r.stop()
		pass(time.Second)
		if ready, why := r.Ready(); ready || turns.Load() != 0 ||
			!strings.Contains(why, "container runtime network not ready: NetworkReady=false") {
			t.Errorf("without a network: ready %v (%s), reported %d times", ready, why, turns.Load())
		}
		r.runtime.noNetwork.Store(false)
		pass(time.Second)
		if ready, why := r.Ready(); !ready || turns.Load() != 1 {
			t.Errorf("with a network: ready %v (%s), reported %d times", ready, why, turns.Load())
		}
	})
}

func TestRestartKeepsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newServer()
		first := run(t, api, nil)
		pass(time.Minute)
		first.stop()
		pass(5 * time.Second)
		before := readyOf(api.snapshot()).LastTransitionTime

		var ready atomic.Bool
		second := run(t, api, func(c *Config, r *rig) {
			r.runtime.down = true
			c.Checks = []Check{{"PLEG", func() error {
				if !ready.Load() {
					return errors.New("pleg has yet to be successful")
				}
				return nil
			}}}
		})
		defer second.stop()
		pass(3 * time.Second)
		second.runtime.set(false)
		pass(3 * time.Second)
		ready.Store(true)
		pass(time.Minute)
		c := readyOf(api.snapshot())
		if c.Status != v1.ConditionTrue || !c.LastTransitionTime.Equal(&before) {
			t.Errorf("Ready = %+v, want unchanged since %v", c, before)
		}
		if second.events.Count("NodeNotReady") != 0 || api.count("create node") != 2 {
			t.Errorf("events %v, creates %d", second.events.Texts(), api.count("create node"))
		}
	})
}

func TestRestartNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newServer()
		first := run(t, api, nil)
		pass(time.Minute)
		first.stop()
		second := run(t, api, func(_ *Config, r *rig) { r.runtime.down = true })
		defer second.stop()
		pass(startGrace + 12*time.Second)
		if c := readyOf(api.snapshot()); c.Status != v1.ConditionFalse {
			t.Errorf("Ready = %+v although the runtime never answered", c)
		}
	})
}

func TestUnavailableServerIsLoggedOnce(t *testing.T) {
	parity.ProvesPart(t, 3, "NODE-01")
	synctest.Test(t, func(t *testing.T) {
		api := newServer()
		api.down = errors.New("connect: connection refused")
		r := run(t, api, nil)
		defer r.stop()
		pass(10 * time.Minute)
		for _, line := range []string{"failed to register node", "failed to watch node"} {
			if n := strings.Count(r.log.String(), line); n != 1 {
				t.Errorf("%q logged %d times:\n%s", line, n, r.log)
			}
		}
		gaps := api.gaps("create node")
		want := []time.Duration{
			100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond,
			1600 * time.Millisecond, 3200 * time.Millisecond, 6400 * time.Millisecond,
		}
		for i := range gaps {
			if w := append(want, 7*time.Second)[min(i, len(want))]; gaps[i] != w {
				t.Errorf("%v between tries %d and %d to register, want %v", gaps[i], i+1, i+2, w)
			}
		}
		if len(gaps) < 80 {
			t.Errorf("%d tries to register in 10 minutes", len(gaps)+1)
		}
		if got, _ := r.Ready(); !got {
			t.Error("the node is not ready for itself")
		}
		api.set(func(f *fakeServer) { f.down = nil })
		pass(8 * time.Second)
		if n := api.snapshot(); n == nil || readyOf(n).Status != v1.ConditionTrue {
			t.Errorf("node after the server came back = %v", n)
		}
	})
}

func TestLeaseAfterPartition(t *testing.T) {
	parity.ProvesPart(t, 2, "NODE-42")
	parity.ProvesPart(t, 2, "CFG-136")
	synctest.Test(t, func(t *testing.T) {
		api := newServer()
		r := run(t, api, nil)
		defer r.stop()
		pass(time.Minute)
		api.set(func(f *fakeServer) { f.hung = true })
		pass(5 * time.Minute)
		if api.resets == 0 {
			t.Error("connections that answer nothing were kept")
		}
		back := time.Now()
		api.set(func(f *fakeServer) { f.hung = false })
		pass(15 * time.Second)
		api.mu.Lock()
		defer api.mu.Unlock()
		if last := api.renewals[len(api.renewals)-1]; last.Before(back) {
			t.Errorf("last renewal %v before the server came back, 15 s ago", back.Sub(last))
		}
		if n := strings.Count(r.log.String(), "failed to renew node lease"); n != 1 {
			t.Errorf("logged %d times:\n%s", n, r.log)
		}
	})
}

// TestLeaseClosesConnections: one of several API servers behind one address may have failed. Its connection is closed,
// so that the next attempt may reach another server. After a rejection by a healthy server the connection is kept,
// because other parts use it for their watches.
func TestLeaseClosesConnections(t *testing.T) {
	parity.ProvesPart(t, 2, "NODE-42")
	lease := coordinationv1.Resource("leases")
	for _, c := range []struct {
		name string
		err  error
		left bool
	}{
		{"its storage does not answer", apierrors.NewInternalError(errors.New("etcdserver: request timed out")), true},
		{"it is not ready", apierrors.NewServiceUnavailable("not yet ready"), true},
		{"it gave up", apierrors.NewTimeoutError("request did not complete", 1), true},
		{"what is before it has no server to ask",
			apierrors.NewGenericServerResponse(502, "PUT", lease, "node1", "no upstream", 0, true), true},
		{"it forbids", apierrors.NewForbidden(lease, "node1", errors.New("no right")), false},
		{"it does not know the node", apierrors.NewUnauthorized("who?"), false},
		{"it is asked too often", apierrors.NewTooManyRequests("later", 0), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newServer()
				r := run(t, api, nil)
				defer r.stop()
				pass(time.Minute)
				tries := api.count("update lease") + api.count("get lease")
				api.set(func(f *fakeServer) { f.down = c.err })
				pass(time.Minute)
				tries = api.count("update lease") + api.count("get lease") - tries
				want := 0
				if c.left {
					want = (tries + 3) / 5 // at the second try, and at every fifth from there
				}
				if api.resets != want || tries < 10 {
					t.Errorf("%d resets in %d tries, want %d", api.resets, tries, want)
				}
			})
			synctest.Test(t, func(t *testing.T) {
				api := newServer()
				api.down = c.err
				r := run(t, api, nil)
				defer r.stop()
				pass(time.Minute)
				tries, want := api.count("create node"), 0
				if c.left {
					want = tries - 1 // each but the first
				}
				if api.resets != want || tries < 5 {
					t.Errorf("%d resets in %d tries to register, want %d", api.resets, tries, want)
				}
			})
		})
	}
}

func TestLeaseIsRecreated(t *testing.T) {
	parity.ProvesPart(t, 5, "NODE-40")
	synctest.Test(t, func(t *testing.T) {
		api := newServer()
		r := run(t, api, nil)
		defer r.stop()
		pass(time.Minute)
		api.set(func(f *fakeServer) { f.lease = nil })
		pass(11 * time.Second)
		if api.lease == nil || *api.lease.Spec.HolderIdentity != "node1" || api.count("create lease") != 2 ||
			api.count("get lease") != 2 {
			t.Errorf("lease %+v, %d creations, %d reads", api.lease, api.count("create lease"), api.count("get lease"))
		}
		// A change by another client is a conflict.
		api.set(func(f *fakeServer) { f.lease.ResourceVersion = "999" })
		pass(11 * time.Second)
		if api.count("get lease") != 3 || *api.lease.Spec.HolderIdentity != "node1" ||
			api.lease.ResourceVersion == "999" {
			t.Errorf("reads %d, lease %+v", api.count("get lease"), api.lease)
		}
		if n := strings.Count(r.log.String(), "failed to renew node lease"); n != 0 {
			t.Errorf("%d complaints:\n%s", n, r.log)
		}
	})
}

// TestLeaseCreateBackoff: there are five attempts without a pause, and then an increasing back-off, so that not all
// nodes send requests at once to a server that is available again.
func TestLeaseCreateBackoff(t *testing.T) {
	parity.ProvesPart(t, 5, "NODE-40")
	synctest.Test(t, func(t *testing.T) {
		api := newServer()
		r := run(t, api, nil)
		defer r.stop()
		pass(time.Minute)
		api.set(func(f *fakeServer) {
			f.lease, f.noLease = nil, apierrors.NewInternalError(errors.New("etcdserver: no space"))
			f.calls, f.times = nil, nil
		})
		pass(time.Minute)
		// The first of the five attempts was the renewal.
		want := []time.Duration{0, 0, 0, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond,
			1600 * time.Millisecond, 3200 * time.Millisecond, 5 * time.Second, 5 * time.Second}
		if got := api.gaps("create lease"); len(got) < 12 || !slices.Equal(got[:len(want)], want) {
			t.Errorf("between tries %v, want %v", got, want)
		}
		api.set(func(f *fakeServer) { f.noLease = nil })
		pass(6 * time.Second)
		if api.lease == nil {
			t.Error("the lease was not made again")
		}
		if n := strings.Count(r.log.String(), "failed to renew node lease"); n != 1 {
			t.Errorf("logged %d times:\n%s", n, r.log)
		}
	})
}

// TestLeaseRenewRetries: there are five attempts without a pause, and then an increasing back-off. After a success the
// lease is renewed at its regular interval.
func TestLeaseRenewRetries(t *testing.T) {
	parity.ProvesPart(t, 5, "NODE-40")
	synctest.Test(t, func(t *testing.T) {
		api := newServer()
		r := run(t, api, nil)
		defer r.stop()
		pass(time.Minute)
		api.set(func(f *fakeServer) {
			f.noRenew = apierrors.NewInternalError(errors.New("etcdserver: no space"))
			f.calls, f.times = nil, nil
		})
		pass(time.Minute)
		want := []time.Duration{0, 0, 0, 0, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond,
			1600 * time.Millisecond, 3200 * time.Millisecond, 5 * time.Second, 5 * time.Second}
		if got := api.gaps("update lease"); len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
			t.Errorf("between tries %v, want %v", got, want)
		}
		api.set(func(f *fakeServer) { f.noRenew = nil })
		pass(6 * time.Second)
		api.set(func(f *fakeServer) { f.calls, f.times = nil, nil })
		pass(time.Minute)
		for _, gap := range api.gaps("update lease") {
			if gap < 10*time.Second || gap > 10400*time.Millisecond {
				t.Errorf("renewed %v apart, want 10 s to 10.4 s", gap)
			}
		}
		if n := api.count("update lease"); n < 5 || api.count("create lease") > 0 {
			t.Errorf("%d renewals, %d creations", n, api.count("create lease"))
		}
	})
}

func TestChangesByOthers(t *testing.T) {
	parity.Proves(t, "NODE-05", "NODE-44")
	parity.ProvesPart(t, 2, "NODE-22")
	synctest.Test(t, func(t *testing.T) {
		api := newServer()
		var changes atomic.Int32
		r := run(t, api, func(c *Config, _ *rig) { c.OnChange = func() { changes.Add(1) } })
		defer r.stop()
		pass(65 * time.Second) // well between two updates
		api.edit(func(n *v1.Node) {
			n.Labels["kubernetes.io/os"] = "plan9"
			delete(n.Labels, "kubernetes.io/arch")
			n.Labels["beta.kubernetes.io/os"] = "theirs" // set at registration only
			delete(n.Labels, "beta.kubernetes.io/arch")
			n.Labels["zone"] = "z"
		})
		pass(time.Minute)
		want := map[string]string{
			"kubernetes.io/hostname": "node1",
			"kubernetes.io/os":       "linux",
			"kubernetes.io/arch":     "amd64",
			"beta.kubernetes.io/os":  "theirs",
			"zone":                   "z",
		}
		if n := api.snapshot(); !maps.Equal(n.Labels, want) {
			t.Errorf("labels %v, want %v", n.Labels, want)
		}
		api.edit(func(n *v1.Node) {
			n.Spec.Unschedulable = true
			n.Spec.PodCIDR, n.Spec.PodCIDRs = "10.0.0.0/24", []string{"10.0.0.0/24", "fd01::/64"}
		})
		pass(time.Second)
		if n := api.snapshot(); !n.Spec.Unschedulable {
			t.Error("the node was uncordoned")
		}
		if r.events.Count("NodeNotSchedulable") != 1 || changes.Load() == 0 {
			t.Errorf("events %v, %d changes", r.events.Texts(), changes.Load())
		}
		pass(time.Minute)
		if got := fmt.Sprint(r.runtime.cidrs); got != "[10.0.0.0/24,fd01::/64]" {
			t.Errorf("pod CIDRs reported = %s", got)
		}
		api.edit(func(n *v1.Node) { n.Spec.Unschedulable = false })
		pass(time.Second)
		if r.events.Count("NodeSchedulable") != 1 ||
			!r.reported("Normal NodeSchedulable Node node1 status is now: NodeSchedulable") ||
			!r.reported("Normal NodeNotSchedulable Node node1 status is now: NodeNotSchedulable") {
			t.Errorf("events %v", r.events.Texts())
		}
	})
}

// TestCordonedNodeEvent: at its start an agent assumes a schedulable node, so it records the event NodeNotSchedulable
// for a cordoned one.
func TestCordonedNodeEvent(t *testing.T) {
	parity.ProvesPart(t, 2, "NODE-22")
	for cordoned, want := range map[bool]int{true: 1, false: 0} {
		synctest.Test(t, func(t *testing.T) {
			api := newServer()
			first := run(t, api, nil)
			pass(time.Minute)
			first.stop()
			api.edit(func(n *v1.Node) { n.Spec.Unschedulable = cordoned })
			second := run(t, api, nil)
			defer second.stop()
			pass(time.Minute)
			if n := second.events.Count("NodeNotSchedulable"); n != want ||
				second.events.Count("NodeSchedulable") != 0 {
				t.Errorf("cordoned %v: events %v", cordoned, second.events.Texts())
			}
		})
	}
}

func TestRegisterDisabled(t *testing.T) {
	parity.Proves(t, "NODE-03")
	parity.ProvesPart(t, 2, "NODE-39")
	synctest.Test(t, func(t *testing.T) {
		api := newServer()
		r := run(t, api, func(c *Config, _ *rig) { c.Register = false })
		defer r.stop()
		pass(time.Minute)
		if api.count("create node") != 0 {
			t.Error("the node was created")
		}
		if n := api.count("get node"); n > 10 {
			t.Errorf("asked for the node %d times in a minute", n)
		}
		if api.lease != nil {
			t.Errorf("a lease without a node that owns it: %+v", api.lease)
		}
		api.set(func(f *fakeServer) {
			f.storeLocked(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", UID: types.UID("theirs")}})
		})
		pass(11 * time.Second)
		if n := api.snapshot(); readyOf(n).Status != v1.ConditionTrue {
			t.Errorf("the node of another client has status %+v", n.Status.Conditions)
		}
		if l := api.lease; l == nil || len(l.OwnerReferences) != 1 || l.OwnerReferences[0].UID != "theirs" {
			t.Errorf("lease of the node of another client = %+v", l)
		}
	})
}

// The annotation with the addresses of --node-ip is set on a node that another client created, set again after it was
// removed, and removed if it does not apply.
func TestProvidedNodeIPAnnotation(t *testing.T) {
	parity.ProvesPart(t, 4, "NODE-07")
	const annotation = "alpha.kubernetes.io/provided-node-ip"
	for _, tc := range []struct {
		name     string
		external bool
		provided string
		want     string
	}{
		{"by an external provider", true, "192.0.2.2,fd00::2", "192.0.2.2,fd00::2"},
		{"without a provider", false, "192.0.2.2", ""},
		{"without an address", true, "", ""},
	} {
		for _, register := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				api := newServer()
				if !register {
					api.node = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", UID: "theirs"}}
				}
				r := run(t, api, func(c *Config, _ *rig) {
					c.Register = register
					c.Identity.External, c.Identity.ProvidedIP = tc.external, tc.provided
				})
				defer r.stop()
				shows := func(when string) {
					t.Helper()
					pass(11 * time.Second)
					got, there := api.snapshot().Annotations[annotation]
					if got != tc.want || there != (tc.want != "") {
						t.Errorf("%s, registers %v, %s: %q, want %q", tc.name, register, when, got, tc.want)
					}
				}
				shows("at first")
				api.edit(func(n *v1.Node) { delete(n.Annotations, annotation) })
				shows("removed")
				api.edit(func(n *v1.Node) {
					n.Annotations = map[string]string{annotation: "192.0.2.9", "example.com/a": "b"}
				})
				shows("changed")
				if got := api.snapshot().Annotations["example.com/a"]; got != "b" {
					t.Errorf("the annotation of another is %q", got)
				}
			})
		}
	}
}

func TestRegisterExistingForbidden(t *testing.T) {
	parity.ProvesPart(t, 3, "NODE-01")
	parity.ProvesPart(t, 4, "NODE-02")
	for _, forbidden := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			api := newServer()
			api.noCreate = forbidden
			api.node = &v1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "node1", UID: "theirs"},
				Status: v1.NodeStatus{
					NodeInfo:    v1.NodeSystemInfo{MachineID: "another"},
					Capacity:    list("hugepages-64Ki", "1Gi", "hugepages-2Mi", "2Mi", "example.com/gpu", "1"),
					Allocatable: list("hugepages-64Ki", "1Gi", "hugepages-2Mi", "2Mi", "example.com/gpu", "1"),
				},
			}
			r := run(t, api, func(c *Config, _ *rig) {
				c.Machine.HugePages = map[uint64]uint64{2 << 20: 3, 1 << 30: 2}
				c.NoDeviceRecord = true
			})
			defer r.stop()
			pass(time.Second)
			n := api.snapshot()
			if readyOf(n).Status != v1.ConditionTrue || n.UID != "theirs" ||
				n.Labels["kubernetes.io/arch"] != "amd64" ||
				n.Annotations["volumes.kubernetes.io/controller-managed-attach-detach"] != "true" {
				t.Errorf("forbidden %v: node = %+v", forbidden, n)
			}
			if api.count("create node") != 1 || api.count("get node") < 1 {
				t.Errorf("forbidden %v: %d creations, %d reads", forbidden, api.count("create node"),
					api.count("get node"))
			}
			for name, want := range map[v1.ResourceName]string{
				"hugepages-2Mi":   "6Mi",
				"hugepages-1Gi":   "2Gi",
				"hugepages-64Ki":  "",
				"example.com/gpu": "0",
			} {
				c, there := n.Status.Capacity[name]
				a := n.Status.Allocatable[name]
				if there != (want != "") || there && (c.String() != want || a.String() != want) {
					t.Errorf("forbidden %v: %s = %s of %s, want %q", forbidden, name, a.String(), c.String(), want)
				}
			}
		})
	}
}

func TestUpdateConflict(t *testing.T) {
	parity.Proves(t, "NODE-13")
	synctest.Test(t, func(t *testing.T) {
		api := newServer()
		volumes := []v1.UniqueVolumeName{}
		r := run(t, api, func(c *Config, _ *rig) { c.VolumesInUse = func() []v1.UniqueVolumeName { return volumes } })
		defer r.stop()
		pass(time.Minute)
		reads, patches := api.count("get node"), api.count("patch status")
		api.set(func(f *fakeServer) { f.down = apierrors.NewServerTimeout(v1.Resource("nodes"), "patch", 1) })
		volumes = []v1.UniqueVolumeName{"kubernetes.io/csi/x"}
		r.Wake()
		synctest.Wait()
		// The first attempt uses the copy. The other four begin with reading the node, which fails.
		if p, g := api.count("patch status")-patches, api.count("get node")-reads; p != 1 || g != 4 {
			t.Errorf("%d patches and %d reads in a round, want 1 and 4", p, g)
		}
		api.set(func(f *fakeServer) { f.down = nil })
		pass(11 * time.Second)
		if got := api.snapshot().Status.VolumesInUse; !slices.Equal(got, volumes) {
			t.Errorf("volumes in use = %v", got)
		}
		// If reading succeeds, each of the five attempts sends a patch.
		reads, patches = api.count("get node"), api.count("patch status")
		api.set(func(f *fakeServer) {
			f.noPatch = apierrors.NewConflict(v1.Resource("nodes"), "node1", errors.New("changed"))
		})
		volumes = nil
		r.Wake()
		synctest.Wait()
		if p, g := api.count("patch status")-patches, api.count("get node")-reads; p != 5 || g != 4 {
			t.Errorf("%d patches and %d reads in a round, want 5 and 4", p, g)
		}
		api.set(func(f *fakeServer) { f.noPatch = nil })
		pass(11 * time.Second)
		if got := api.snapshot().Status.VolumesInUse; len(got) != 0 {
			t.Errorf("volumes in use = %v", got)
		}
	})
}

func TestReboot(t *testing.T) {
	parity.Proves(t, "NODE-21")
	synctest.Test(t, func(t *testing.T) {
		api := newServer()
		first := run(t, api, nil)
		pass(time.Minute)
		first.stop()
		second := run(t, api, func(c *Config, _ *rig) { c.Machine.BootID = "another" })
		defer second.stop()
		pass(time.Minute)
		if !second.reported("Warning Rebooted Node node1 has been rebooted, boot id: another") ||
			second.events.Count("Rebooted") != 1 || first.events.Count("Rebooted") != 0 {
			t.Errorf("events = %v", second.events.Texts())
		}
	})
}

func TestStandalone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, nil, func(c *Config, _ *rig) { c.CgroupV1 = true; c.Identity.Name = "192.0.2.2" })
		defer r.stop()
		<-r.Registered()
		if ok, msg := r.Ready(); !ok {
			t.Errorf("not ready: %s", msg)
		}
		alloc := r.Allocatable()
		if got := fmt.Sprint(r.HostIPs()); got != "[192.0.2.2]" || alloc.Pods().Value() != 110 {
			t.Errorf("addresses %s, pods %s", got, alloc.Pods())
		}
		if r.Node.Node().Labels["kubernetes.io/os"] != "linux" {
			t.Error("the node has no labels")
		}
		if r.events.Count("CgroupV1") != 1 {
			t.Errorf("events = %v", r.events.Texts())
		}
	})
}

func TestEnforceIsRetried(t *testing.T) {
	parity.ProvesPart(t, 2, "RES-16")
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		var times []time.Time
		r := run(t, nil, func(c *Config, _ *rig) {
			c.AllPods = []string{"kubepods"}
			c.Enforce = func(v1.ResourceList) error {
				times = append(times, time.Now())
				if tries++; tries < 3 {
					return errors.New("device or resource busy")
				}
				return nil
			}
		})
		defer r.stop()
		pass(10 * time.Minute)
		if tries != 3 || r.events.Count("FailedNodeAllocatableEnforcement") != 2 ||
			r.events.Count("NodeAllocatableEnforced") != 1 {
			t.Errorf("%d tries, events %v", tries, r.events.Texts())
		}
		if !r.reported("Normal NodeAllocatableEnforced Updated Node Allocatable limit across pods") ||
			!r.reported(`Warning FailedNodeAllocatableEnforcement `+
				`Failed to update Node Allocatable Limits ["kubepods"]: device or resource busy`) {
			t.Errorf("events %v", r.events.Texts())
		}
		for i := 1; i < len(times); i++ {
			if gap := times[i].Sub(times[i-1]); gap != time.Minute {
				t.Errorf("%v between tries, want a minute", gap)
			}
		}
	})
}

func TestReservedExceedsCapacity(t *testing.T) {
	parity.Proves(t, "RES-23")
	evict := func(amounts v1.ResourceList) func(v1.ResourceList) v1.ResourceList {
		return func(v1.ResourceList) v1.ResourceList { return amounts }
	}
	for _, tc := range []struct {
		name     string
		reserved v1.ResourceList
		kept     v1.ResourceList
		want     string // "" starts
	}{
		{"all there is", list("cpu", "2", "memory", "24684096Ki"), nil, ""},
		{"more CPUs", list("cpu", "2001m"), nil,
			"reserve cpu: systemReserved, kubeReserved and evictionHard come to 2001m, and the machine has 2"},
		{"more memory", list("memory", "24684097Ki"), nil,
			"reserve memory: systemReserved, kubeReserved and evictionHard come to 24684097Ki, and the machine has 24684096Ki"},
		{"what is to be left counts", list("memory", "24684000Ki"), list("memory", "97Ki"),
			"reserve memory: systemReserved, kubeReserved and evictionHard come to 24684097Ki, and the machine has 24684096Ki"},
		{"and alone", nil, list("memory", "24684097Ki"),
			"reserve memory: systemReserved, kubeReserved and evictionHard come to 24684097Ki, and the machine has 24684096Ki"},
		{"of what the machine does not account for", list("pid", "1000000000"), list("example.com/x", "1"), ""},
	} {
		_, err := New(Config{Size: Size{
			Machine:            upstreamMachine(),
			Reserved:           tc.reserved,
			EvictionThresholds: evict(tc.kept),
		}})
		if got := fmt.Sprint(err); (tc.want != "" || err != nil) && got != tc.want {
			t.Errorf("%s: New = %v, want %q", tc.name, err, tc.want)
		}
	}
}

func TestPressureCondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var pressures []v1.NodeConditionType
		api := newServer()
		r := run(t, api, func(c *Config, _ *rig) {
			c.Pressures = func(context.Context) []v1.NodeConditionType {
				mu.Lock()
				defer mu.Unlock()
				return pressures
			}
		})
		defer r.stop()
		pass(15 * time.Second)
		set := func(now ...v1.NodeConditionType) {
			mu.Lock()
			pressures = now
			mu.Unlock()
			r.Wake()
			synctest.Wait()
		}
		under := func() v1.ConditionStatus { return condition(api.snapshot().Status, v1.NodeMemoryPressure).Status }
		if under() != v1.ConditionFalse {
			t.Error("pressure without any")
		}
		set(v1.NodeMemoryPressure)
		if under() != v1.ConditionTrue || r.events.Count("NodeHasInsufficientMemory") != 1 {
			t.Errorf("the pressure is not shown; events %v", r.events.Texts())
		}
		set()
		if under() != v1.ConditionFalse {
			t.Error("the pressure is shown though it is over")
		}
	})
}

func TestReportJitter(t *testing.T) {
	parity.ProvesPart(t, 2, "NODE-14")
	var lo, hi time.Duration = time.Hour, 0
	now := time.Now()
	for range 1000 {
		r := reporter{every: 5 * time.Minute}
		r.sent(now, true)
		lo, hi = min(lo, r.delay), max(hi, r.delay)
	}
	if lo < 150*time.Second || lo > 200*time.Second || hi > 450*time.Second || hi < 400*time.Second {
		t.Errorf("delays from %v to %v, want 2.5 to 7.5 minutes", lo, hi)
	}
	r := reporter{every: 5 * time.Minute}
	r.sent(now, false)
	if r.delay != 5*time.Minute || r.due(now.Add(299*time.Second)) || !r.due(now.Add(300*time.Second)) {
		t.Errorf("delay without news = %v", r.delay)
	}
}

// pass advances the virtual time, and waits until everything that is due has happened.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
