package csi

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"

	"keelson/test/kit/csidriver"
	"keelson/test/kit/parity"
)

// fakeNode is a Node and its CSINode at the API server, with checks of resource versions.
type fakeNode struct {
	mu     sync.Mutex
	node   *v1.Node
	csi    *storagev1.CSINode
	fail   error // of all calls
	meddle func()
}

func (f *fakeNode) Node(context.Context) (*v1.Node, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.node.DeepCopy(), f.fail
}

func (f *fakeNode) PatchNode(_ context.Context, patch []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, _ := json.Marshal(f.node)
	after, err := strategicpatch.StrategicMergePatch(before, patch, v1.Node{})
	if err != nil {
		return err
	}
	var next v1.Node
	if err := json.Unmarshal(after, &next); err != nil {
		return err
	}
	f.node = &next
	return f.fail
}

func (f *fakeNode) CSINode(context.Context) (*storagev1.CSINode, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return nil, f.fail
	}
	if f.csi == nil {
		return nil, apierrors.NewNotFound(storagev1.Resource("csinodes"), nodeName)
	}
	return f.csi.DeepCopy(), nil
}

func (f *fakeNode) CreateCSINode(_ context.Context, n *storagev1.CSINode) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.csi != nil {
		return apierrors.NewAlreadyExists(storagev1.Resource("csinodes"), nodeName)
	}
	f.csi = n.DeepCopy()
	f.csi.ResourceVersion = "v0"
	return f.fail
}

func (f *fakeNode) UpdateCSINode(_ context.Context, n *storagev1.CSINode) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if meddle := f.meddle; meddle != nil {
		f.meddle = nil
		meddle()
	}
	if n.ResourceVersion != f.csi.ResourceVersion {
		return apierrors.NewConflict(storagev1.Resource("csinodes"), nodeName, errors.New("changed"))
	}
	f.csi = n.DeepCopy()
	f.csi.ResourceVersion += "+"
	return f.fail
}

func (f *fakeNode) state() (*v1.Node, *storagev1.CSINode) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.node.DeepCopy(), f.csi.DeepCopy()
}

func startShown(t *testing.T, api NodeAPI) *NodeInfoManager {
	t.Helper()
	registered, ready := make(chan struct{}), make(chan struct{})
	s := NewNodeInfoManager(api, nodeName, registered, func() { close(ready) }, slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	if err := s.Problem(); err == nil || err.Error() != "CSINode is not yet initialized" {
		t.Errorf("before the node is registered: %v", err)
	}
	close(registered)
	select {
	case <-ready:
	case <-time.After(time.Minute):
		t.Fatal("the CSINode was not made")
	}
	if err := s.Problem(); err != nil {
		t.Errorf("with a CSINode: %v", err)
	}
	return s
}

func TestCSINodeUpdates(t *testing.T) {
	// The list of migrated plugins (VOL-72) is compared with upstream's where both agents run on
	// one node in turn.
	parity.Proves(t, "PLUG-13", "PLUG-15", "PLUG-32")
	parity.ProvesPart(t, 2, "PLUG-14")
	parity.ProvesPart(t, 2, "VOL-71")
	parity.ProvesPart(t, 2, "PLUG-17")
	api := &fakeNode{
		node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: "u", Labels: map[string]string{"mine": "1"}}},
	}
	n := newTestNode(t, func(c *csidriver.Config) {
		c.Max, c.Topology = 25, map[string]string{"topology.example/zone": "z1", "topology.example/rack": "r2"}
	})
	s := startShown(t, api)
	drivers := NewDrivers(s, nil, slog.New(slog.DiscardHandler))
	_, made := api.state()
	if len(made.Spec.Drivers) != 0 ||
		made.OwnerReferences[0] != (metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: nodeName, UID: "u"}) ||
		made.Annotations["storage.alpha.kubernetes.io/migrated-plugins"] !=
			"kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file,kubernetes.io/cinder,"+
				"kubernetes.io/gce-pd,kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume" {
		t.Errorf("CSINode at the start: %+v", made)
	}

	// The driver cannot return its node ID.
	n.driver.Next("NodeGetInfo", csidriver.Fault{Err: status.Error(codes.Unavailable, "starting")})
	if err := drivers.Register(t.Context(), driverName, n.driver.Socket(), []string{"1.0.0"}); err == nil ||
		!strings.Contains(err.Error(), "starting") {
		t.Errorf("registered with %v", err)
	}
	if got := drivers.Names(); len(got) > 0 {
		t.Errorf("drivers after a failure: %v", got)
	}

	// Another client writes the CSINode at the same time.
	api.mu.Lock()
	api.meddle = func() {
		api.csi.Spec.Drivers = append(api.csi.Spec.Drivers, storagev1.CSINodeDriver{Name: "other", NodeID: "o"})
		api.csi.ResourceVersion += "x"
	}
	api.mu.Unlock()
	must(t, drivers.Register(t.Context(), driverName, n.driver.Socket(), []string{"1.0.0", "1.2.0", "0.3.0"}))
	if d, err := drivers.find(driverName); err != nil || d.endpoint != n.driver.Socket() ||
		d.version.String() != "1.2.0" {
		t.Errorf("the driver is %+v, %v", d, err)
	}
	for _, c := range n.driver.Calls() {
		if c.Method == "NodeGetInfo" && (c.Limit > 2*time.Minute || c.Limit < 2*time.Minute-10*time.Second) {
			t.Errorf("%s may take %v, want 2 minutes", c.Method, c.Limit)
		}
	}
	node, csi := api.state()
	if node.Annotations["csi.volume.kubernetes.io/nodeid"] != `{"`+driverName+`":"id-of-n1"}` ||
		node.Labels["topology.example/zone"] != "z1" || node.Labels["mine"] != "1" {
		t.Errorf("node: %v %v", node.Annotations, node.Labels)
	}
	want := []storagev1.CSINodeDriver{{Name: "other", NodeID: "o"}, {
		Name:         driverName,
		NodeID:       "id-of-n1",
		TopologyKeys: []string{"topology.example/rack", "topology.example/zone"},
		Allocatable:  &storagev1.VolumeNodeResources{Count: ptr.To[int32](25)},
	}}
	if !reflect.DeepEqual(csi.Spec.Drivers, want) {
		t.Errorf("CSINode lists %+v, want %+v", csi.Spec.Drivers, want)
	}

	must(t, drivers.Register(t.Context(), driverName, n.driver.Socket(), []string{"1.2.0"}))
	if err := drivers.Deregister(t.Context(), driverName, "/old.sock"); err != nil ||
		!slices.Equal(drivers.Names(), []string{driverName}) {
		t.Errorf("the end of an old endpoint: %v, %v", err, drivers.Names())
	}
	must(t, drivers.Deregister(t.Context(), driverName, n.driver.Socket()))
	node, csi = api.state()
	if _, ok := node.Annotations["csi.volume.kubernetes.io/nodeid"]; ok || len(csi.Spec.Drivers) != 1 ||
		node.Labels["topology.example/zone"] != "z1" {
		t.Errorf("after its end: %v %v %v", node.Annotations, node.Labels, csi.Spec.Drivers)
	}

	// A driver whose topology contradicts a label is rejected.
	api.mu.Lock()
	api.node.Labels["topology.example/zone"] = "z9"
	api.mu.Unlock()
	if err := drivers.Register(t.Context(), driverName, n.driver.Socket(), []string{"1.0.0"}); err == nil ||
		!strings.Contains(err.Error(),
			`detected topology value collision: driver reported "topology.example/zone":"z1" but existing label is `+
				`"topology.example/zone":"z9"`) {
		t.Errorf("registered with %v", err)
	}
	if got := drivers.Names(); len(got) > 0 {
		t.Errorf("drivers: %v", got)
	}
}

// TestLatestRegistrationWins: a driver that registers again with another socket is called there,
// and the removal of the old socket has no effect.
func TestLatestRegistrationWins(t *testing.T) {
	parity.Proves(t, "PLUG-16")
	old, latest := newTestNode(t, nil), newTestNode(t, nil)
	drivers := NewDrivers(nil, nil, slog.New(slog.DiscardHandler))
	at := func(when, want string) {
		t.Helper()
		if d, err := drivers.find(driverName); err != nil || d.endpoint != want {
			t.Errorf("%s: %+v, %v; want the endpoint %s", when, d, err, want)
		}
	}
	must(t, drivers.Register(t.Context(), driverName, old.driver.Socket(), []string{"1.0.0"}))
	at("registered", old.driver.Socket())
	must(t, drivers.Register(t.Context(), driverName, latest.driver.Socket(), []string{"1.0.0"}))
	at("registered again", latest.driver.Socket())
	must(t, drivers.Deregister(t.Context(), driverName, old.driver.Socket()))
	at("after the end of the old one", latest.driver.Socket())
	must(t, drivers.Deregister(t.Context(), driverName, latest.driver.Socket()))
	if got := drivers.Names(); len(got) > 0 {
		t.Errorf("after the end of the latest: %v", got)
	}
}

// TestFailedRegistrationKeepsDriver: a failed registration with the name of another driver and a
// higher version does not replace that driver.
func TestFailedRegistrationKeepsDriver(t *testing.T) {
	n := newTestNode(t, nil)
	drivers := NewDrivers(nil, nil, slog.New(slog.DiscardHandler))
	must(t, drivers.Register(t.Context(), driverName, n.driver.Socket(), []string{"1.0.0"}))
	if err := drivers.Register(t.Context(), driverName, filepath.Join(t.TempDir(), "absent.sock"),
		[]string{"1.9.0"}); err == nil {
		t.Fatal("registered")
	}
	d, err := drivers.find(driverName)
	must(t, err)
	if d.endpoint != n.driver.Socket() || d.version.String() != "1.0.0" {
		t.Errorf("the driver is now %s at %s", d.version, d.endpoint)
	}
	must(t, drivers.Deregister(t.Context(), driverName, n.driver.Socket()))
	if got := drivers.Names(); len(got) > 0 {
		t.Errorf("after its end: %v", got)
	}
}

func mustVersion(t *testing.T, text string) *version.Version {
	t.Helper()
	v, err := version.ParseGeneric(text)
	must(t, err)
	return v
}

func TestValidateDriver(t *testing.T) {
	parity.Proves(t, "PLUG-12")
	drivers := NewDrivers(nil, nil, slog.New(slog.DiscardHandler))
	drivers.byName["there"] = &driver{name: "there", version: mustVersion(t, "1.5.0")}
	for _, c := range []struct {
		name     string
		versions []string
		want     string // "" for accepted
	}{
		{"a.example", []string{"1.0.0"}, ""},
		{"a.example", []string{"0.3.0", "1.2.0", "2.0.0"}, ""},
		{"a.example", []string{"0.3.0"}, "below 1.0"},
		{"a.example", []string{"2.0.0"}, "none of the versions"},
		{"a.example", nil, "no supported versions"},
		{"a.example", []string{"one"}, "none of the versions"},
		{"there", []string{"1.5.0"}, ""},
		{"there", []string{"1.6.0"}, ""},
		{"there", []string{"1.4.0"}, "is already registered with a higher supported version"},
		{"../../etc", []string{"1.0.0"}, "is not valid"},
		{"Upper_Case", []string{"1.0.0"}, "is not valid"},
		{"", []string{"1.0.0"}, "is not valid"},
		{strings.Repeat("a", 64), []string{"1.0.0"}, "is not valid"},
	} {
		err := drivers.Validate(c.name, "/s.sock", c.versions)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q %v: %v, want %q", c.name, c.versions, err, c.want)
		}
	}
}
