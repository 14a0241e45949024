package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
	"keelson/test/kit/need"
	"keelson/test/kit/parity"
)

// liveTree returns a tree in real cgroups, under a root that is removed at the end of the test.
func liveTree(t *testing.T, h Hierarchies, opts PodOptions) *Tree {
	t.Helper()
	need.Root(t, "making control groups")
	root := fmt.Sprintf("/keelson-test-%d-%d", os.Getpid(), len(t.Name()))
	if _, err := h.make(root); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, m := range h.all() {
			if err := removeTree(filepath.Join(m, root)); err != nil {
				t.Errorf("clean up: %v", err)
			}
		}
	})
	tree, err := New(Config{Driver: Cgroupfs, Root: root, Hierarchies: h, Pod: opts})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func v1Machine(t *testing.T) Hierarchies {
	t.Helper()
	h, err := Detect()
	if err != nil {
		t.Fatal(err)
	}
	if h.V2() {
		need.Skip(t, "this machine has no cgroup v1")
	}
	return h
}

func v2Machine(t *testing.T) Hierarchies {
	t.Helper()
	h, err := Detect()
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case h.V2():
		return h
	case h.Idle != "": // a real hierarchy, with few controllers or none
		return Hierarchies{Unified: h.Idle}
	}
	need.Skip(t, "this machine has no cgroup v2")
	return h
}

// TestUpstreamValues creates the cgroups of pods that were run with the upstream kubelet, and
// compares each value with the recorded one.
func TestUpstreamValues(t *testing.T) {
	parity.Proves(t, "RES-01")
	parity.ProvesPart(t, 2, "RES-09")
	h := v1Machine(t)
	tree := liveTree(t, h, plain)
	pods, want := recorded(t)

	if err := tree.EnsureRoot(Values{CPUShares: shares(2000), Memory: 25276514304, PIDs: 32768}); err != nil {
		t.Fatal(err)
	}
	var all []*v1.Pod
	for _, p := range pods {
		if err := tree.EnsurePod(p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if err := tree.UpdateQoS(BurstableCPU(all)); err != nil {
		t.Fatal(err)
	}
	if err := tree.RemovePod(t.Context(), pods[v1.PodQOSBestEffort].UID); err != nil { // as in the recording
		t.Fatal(err)
	}
	compared := 0
	for k, value := range want {
		controller, group, file := k[0], k[1], k[2]
		mount, ok := h.V1[controller]
		if !ok {
			continue
		}
		group = strings.NewReplacer("<", "", ">", "").Replace(group)
		root := tree.pods[:len(tree.pods)-1].path(Cgroupfs)
		got := read(t, filepath.Join(mount, root, group, file))
		if controller == "cpuset" {
			value = read(t, filepath.Join(mount, root, file)) // the CPUs and memory nodes of this machine
		}
		if got != value {
			t.Errorf("%s of %s = %s, want %s", file, group, got, value)
		}
		compared++
	}
	if compared < 30 {
		t.Errorf("only %d values compared", compared)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func testLife(t *testing.T, h Hierarchies) {
	tree := liveTree(t, h, plain)
	if err := tree.EnsureRoot(Values{CPUShares: 1024}); err != nil {
		t.Fatal(err)
	}
	pods, _ := recorded(t)
	p := pods[v1.PodQOSBurstable]
	if tree.cfg.Hierarchies.exists(tree.Parent(p)) {
		t.Fatal("the pod's cgroup exists before it was made")
	}
	for range 2 { // the second call finds an existing cgroup
		if err := tree.EnsurePod(p); err != nil {
			t.Fatal(err)
		}
	}
	if !tree.cfg.Hierarchies.exists(tree.Parent(p)) {
		t.Fatal("the pod's cgroup does not exist")
	}
	// What a runtime would leave: a container's cgroup with a process in it.
	for _, m := range h.mounts() {
		if _, err := h.make(filepath.Join(tree.Parent(p), "ctr")); err != nil {
			t.Fatal(m, err)
		}
	}
	left := exec.Command("sleep", "1000")
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = left.Process.Kill() }) // it has exited already unless the test failed
	for _, m := range h.mounts() {
		dir := filepath.Join(m, tree.Parent(p), "ctr")
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(left.Process.Pid)),
			0o644); err != nil {
			t.Fatal(err)
		}
	}
	shares := func() string {
		if h.V1["cpu"] == "" {
			return "2" // without the cpu controller there is nothing to read
		}
		return read(t, filepath.Join(h.V1["cpu"], tree.Parent(p), "cpu.shares"))
	}
	if got := shares(); got == "2" && h.V1["cpu"] != "" {
		t.Error("a new pod has the minimum of CPU shares")
	}
	if err := tree.ReducePod(p.UID); err != nil {
		t.Fatal(err)
	}
	if got := shares(); got != "2" {
		t.Errorf("a pod that has ended has %s CPU shares, want 2", got)
	}
	if uids, err := tree.List(); err != nil || len(uids) != 1 || uids[0] != p.UID {
		t.Errorf("List = %v, %v", uids, err)
	}
	reaped := make(chan error, 1)
	go func() { reaped <- left.Wait() }()
	if err := tree.RemovePod(t.Context(), p.UID); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := <-reaped; !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != unix.SIGKILL {
		t.Errorf("the process left in the pod ended with %v, want killed", err)
	}
	if uids, err := tree.List(); err != nil || len(uids) != 0 {
		t.Errorf("List after removal = %v, %v", uids, err)
	}
	if err := tree.RemovePod(t.Context(), p.UID); err != nil {
		t.Errorf("removing a pod that is gone: %v", err)
	}
}

func TestPodCgroupV1(t *testing.T) {
	parity.ProvesPart(t, 3, "RES-20")
	testLife(t, v1Machine(t))
}

func TestPodCgroupV2(t *testing.T) { testLife(t, v2Machine(t)) }

func TestMissingHierarchyIsRecreated(t *testing.T) {
	h := v1Machine(t)
	tree := liveTree(t, h, plain)
	if err := tree.EnsureRoot(Values{}); err != nil {
		t.Fatal(err)
	}
	pods, _ := recorded(t)
	p := pods[v1.PodQOSGuaranteed]
	if err := tree.EnsurePod(p); err != nil {
		t.Fatal(err)
	}
	if err := unix.Rmdir(filepath.Join(h.V1["memory"], tree.Parent(p))); err != nil {
		t.Fatal(err)
	}
	if tree.cfg.Hierarchies.exists(tree.Parent(p)) {
		t.Error("a pod without its memory cgroup passes for whole")
	}
	if uids, err := tree.List(); err != nil || len(uids) != 1 {
		t.Errorf("List = %v, %v: what is left of the pod would stay for ever", uids, err)
	}
	if err := tree.EnsurePod(p); err != nil {
		t.Fatal(err)
	}
	if got := read(t, filepath.Join(h.V1["memory"], tree.Parent(p), "memory.limit_in_bytes")); got != "67108864" {
		t.Errorf("memory limit after mending = %s", got)
	}
}

// TestReducePodCreatesNothing: the cgroup of a terminated pod may have been removed in part. ReducePod does not create
// it again.
func TestReducePodCreatesNothing(t *testing.T) {
	h := v1Machine(t)
	tree := liveTree(t, h, plain)
	if err := tree.EnsureRoot(Values{}); err != nil {
		t.Fatal(err)
	}
	pods, _ := recorded(t)
	p := pods[v1.PodQOSBurstable]
	if err := tree.EnsurePod(p); err != nil {
		t.Fatal(err)
	}
	for _, controller := range []string{"memory", "cpu"} {
		removed := filepath.Join(h.V1[controller], tree.Parent(p))
		if err := unix.Rmdir(removed); err != nil {
			t.Fatal(err)
		}
		if err := tree.ReducePod(p.UID); err != nil {
			t.Errorf("without its %s cgroup: %v", controller, err)
		}
		if _, err := os.Stat(removed); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s was made again: %v", removed, err)
		}
	}
}

// An agent may exit or fail after it has created a cgroup and before it has written the values.
// MakePod writes them when the pod starts. EnsurePod, which is called for running pods, does not
// change an existing cgroup.
func TestExistingCgroupGetsValues(t *testing.T) {
	h := v1Machine(t)
	opts := plain
	opts.PIDs = 77
	tree := liveTree(t, h, opts)
	if err := tree.EnsureRoot(Values{}); err != nil {
		t.Fatal(err)
	}
	pods, _ := recorded(t)
	p := pods[v1.PodQOSGuaranteed]
	if _, err := h.make(tree.Parent(p)); err != nil {
		t.Fatal(err)
	}
	limit := func() string { return read(t, filepath.Join(h.V1["memory"], tree.Parent(p), "memory.limit_in_bytes")) }
	if err := tree.EnsurePod(p); err != nil {
		t.Fatal(err)
	}
	if got := limit(); got == "67108864" {
		t.Errorf("what the pod is worth now was written over")
	}
	if err := tree.MakePod(p); err != nil {
		t.Fatal(err)
	}
	if got, pids := limit(), read(t, filepath.Join(h.V1["pids"], tree.Parent(p), "pids.max")); got != "67108864" ||
		pids != "77" {
		t.Errorf("memory limit %s, processes %s", got, pids)
	}
}

// TestKernelAcceptsValuesV2 reads the values back from a kernel that has the
// controllers on cgroup v2.
func TestKernelAcceptsValuesV2(t *testing.T) {
	h := v2Machine(t)
	have, err := controllers(h.Unified)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []string{"cpu", "memory", "pids"} {
		if !slices.Contains(have, c) {
			need.Skip(t, "this machine lacks a controller on cgroup v2", c)
		}
	}
	opts := plain
	opts.PIDs = 77
	tree := liveTree(t, h, opts)
	pods, _ := recorded(t)
	if err := tree.EnsureRoot(Values{CPUShares: 2048, Memory: 1 << 30, PIDs: 1000}); err != nil {
		t.Fatal(err)
	}
	var all []*v1.Pod
	for _, p := range pods {
		if err := tree.EnsurePod(p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if err := tree.UpdateQoS(BurstableCPU(all)); err != nil {
		t.Fatal(err)
	}
	if err := tree.RaiseQoS(BurstableCPU(all) / 2); err != nil { // not applied, since the class has more
		t.Fatal(err)
	}
	root := filepath.Join(h.Unified, tree.pods.path(Cgroupfs))
	for file, want := range map[string]string{
		"cpu.weight":                              "79",
		"memory.max":                              "1073741824",
		"pids.max":                                "1000",
		"besteffort/cpu.weight":                   "1",
		"besteffort/memory.max":                   "max",
		"burstable/cpu.weight":                    "4",
		"burstable/cpu.max":                       "max 100000",
		"poduid-guaranteed/cpu.weight":            "20",
		"poduid-guaranteed/cpu.max":               "50000 100000",
		"poduid-guaranteed/memory.max":            "67108864",
		"poduid-guaranteed/pids.max":              "77",
		"burstable/poduid-burstable/cpu.weight":   "4",
		"burstable/poduid-burstable/memory.max":   "max",
		"besteffort/poduid-besteffort/cpu.weight": "1",
		"besteffort/poduid-besteffort/cpu.max":    "max 100000",
	} {
		if got := read(t, filepath.Join(root, file)); got != want {
			t.Errorf("%s = %s, want %s", file, got, want)
		}
	}
}

// TestWritesV2 writes to fixture files, because the machine may lack the controllers.
func TestWritesV2(t *testing.T) {
	mount := t.TempDir()
	tree, err := New(Config{Driver: Cgroupfs, Hierarchies: Hierarchies{Unified: mount}, Pod: plain})
	if err != nil {
		t.Fatal(err)
	}
	pods, _ := recorded(t)
	p := pods[v1.PodQOSGuaranteed]
	for _, dir := range []string{"", "kubepods", "kubepods/poduid-guaranteed"} {
		if err := os.MkdirAll(filepath.Join(mount, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{
			"cgroup.controllers":     "cpu memory\n",
			"cgroup.subtree_control": "\n",
		} {
			if err := os.WriteFile(filepath.Join(mount, dir, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := tree.MakePod(p); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(mount, tree.Parent(p))
	for file, want := range map[string]string{"cpu.weight": "20", "cpu.max": "50000 100000", "memory.max": "67108864"} {
		if got := read(t, filepath.Join(dir, file)); got != want {
			t.Errorf("%s = %s, want %s", file, got, want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "pids.max")); err == nil {
		t.Error("pids.max was written without the controller")
	}
	if got := read(t, filepath.Join(mount, "kubepods/cgroup.subtree_control")); got != "+memory" {
		t.Errorf("the last controller handed on is %q, want +memory", got)
	}
}

// fakeUnits creates the directories of a slice, as systemd does.
type fakeUnits struct {
	h       Hierarchies
	running map[string]Values
}

func (f *fakeUnits) start(n name, v Values) error {
	unit, _ := n.slice()
	f.running[unit] = v
	for _, m := range f.h.mounts() {
		if err := os.MkdirAll(filepath.Join(m, n.path(Systemd)), 0o755); err != nil {
			return err
		}
	}
	return nil
}

func (f *fakeUnits) stop(n name) error {
	unit, _ := n.slice()
	delete(f.running, unit)
	return nil
}

func TestSystemdDriver(t *testing.T) {
	parity.Proves(t, "RES-02")
	h := Hierarchies{Unified: t.TempDir()}
	tree, err := New(Config{Driver: Systemd, Hierarchies: h, Pod: plain})
	if err != nil {
		t.Fatal(err)
	}
	units := &fakeUnits{h: h, running: map[string]Values{}}
	tree.units = units
	if err := tree.EnsureRoot(Values{CPUShares: 2048, Memory: 1 << 30}); err != nil {
		t.Fatal(err)
	}
	pods, _ := recorded(t)
	p := pods[v1.PodQOSBurstable]
	if err := tree.EnsurePod(p); err != nil {
		t.Fatal(err)
	}
	if err := tree.UpdateQoS(100); err != nil {
		t.Fatal(err)
	}
	for unit, want := range map[string]uint64{
		"kubepods.slice":                            2048,
		"kubepods-burstable.slice":                  102,
		"kubepods-besteffort.slice":                 2,
		"kubepods-burstable-poduid_burstable.slice": 102,
	} {
		if got := units.running[unit].CPUShares; got != want {
			t.Errorf("shares of %s = %d, want %d", unit, got, want)
		}
	}
	if uids, err := tree.List(); err != nil || len(uids) != 1 || uids[0] != p.UID {
		t.Errorf("List = %v, %v", uids, err)
	}
	if err := tree.RemovePod(t.Context(), p.UID); err != nil {
		t.Fatal(err)
	}
	if _, ok := units.running["kubepods-burstable-poduid_burstable.slice"]; ok ||
		tree.cfg.Hierarchies.exists(tree.Parent(p)) {
		t.Error("the pod's slice is still there")
	}
}

func TestDetectMissingControllers(t *testing.T) {
	parity.ProvesPart(t, 2, "RES-06")
	err := Hierarchies{V1: map[string]string{"cpu": "/x", "memory": "/y"}}.check()
	if err == nil || !strings.Contains(err.Error(), "Following Cgroup subsystem not mounted: [cpuacct cpuset]") {
		t.Errorf("check = %v", err)
	}
}

// Calls that change nothing are not observed.
func TestObserve(t *testing.T) {
	tree := liveTree(t, v1Machine(t), plain)
	if err := tree.EnsureRoot(Values{}); err != nil {
		t.Fatal(err)
	}
	var seen []string
	tree.cfg.Observe = func(operation string, _ time.Duration) { seen = append(seen, operation) }
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
	for _, do := range []func() error{
		func() error { return tree.EnsurePod(p) }, func() error { return tree.EnsurePod(p) },
		func() error { return tree.MakePod(p) },
		func() error { return tree.RemovePod(t.Context(), "u") },
		func() error { return tree.RemovePod(t.Context(), "u") },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{Create, Update, Destroy}; !slices.Equal(seen, want) {
		t.Errorf("observed %v, want %v", seen, want)
	}
}

// The error for events and statuses has upstream's text.
func TestMakePodError(t *testing.T) {
	dir := t.TempDir()
	tree, err := New(Config{Driver: Cgroupfs, Hierarchies: Hierarchies{V1: map[string]string{"cpu": dir}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "kubepods"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kubepods/burstable"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "u1"},
		Spec: v1.PodSpec{Containers: []v1.Container{{
			Name:      "main",
			Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}},
		}}},
	}
	want := "failed to create container for [kubepods burstable podu1] : mkdir " + dir +
		"/kubepods/burstable/podu1: not a directory"
	for name, try := range map[string]func(*v1.Pod) error{"make": tree.MakePod, "ensure": tree.EnsurePod} {
		if text, _ := pod.ShownText(try(p)); text != want {
			t.Errorf("%s: shows %q, want %q", name, text, want)
		}
	}
}

// TestEnableControllers: every available controller whose files are written is enabled.
func TestEnableControllers(t *testing.T) {
	parity.ProvesPart(t, 2, "RES-06")
	for _, tc := range []struct{ have, on, last string }{
		{"io cpu", "", "+cpu"},
		{"cpu cpuset", "cpu", "+cpuset"},
		{"cpu memory", "cpu", "+memory"},
		{"memory hugetlb", "memory", "+hugetlb"},
		{"cpu memory pids", "memory", "+pids"},
		{"cpu memory", "memory cpu", "memory cpu"},
	} {
		dir := t.TempDir()
		on := filepath.Join(dir, "cgroup.subtree_control")
		err := errors.Join(os.WriteFile(filepath.Join(dir, "cgroup.controllers"), []byte(tc.have+"\n"), 0o600),
			os.WriteFile(on, []byte(tc.on), 0o600))
		if err != nil {
			t.Fatal(err)
		}
		if err := enable(dir); err != nil {
			t.Error(err)
		}
		if got := read(t, on); got != tc.last {
			t.Errorf("of %q, with %q on: the last word is %q, want %q", tc.have, tc.on, got, tc.last)
		}
	}
}

// TestHugePagesAreLimited: each pod is limited to the huge pages that it requests, and to 0 of other
// sizes; QoS cgroups have no limit, and kubepods has that of the machine.
func TestHugePagesAreLimited(t *testing.T) {
	parity.ProvesPart(t, 4, "RES-14")
	h := Hierarchies{V1: map[string]string{"cpu": t.TempDir(), "hugetlb": t.TempDir()}}
	opts := plain
	opts.PageSizes = []uint64{2 << 20, 1 << 30}
	tree, err := New(Config{Driver: Cgroupfs, Hierarchies: h, Pod: opts})
	if err != nil {
		t.Fatal(err)
	}
	whole := list("cpu", "2", "hugepages-2Mi", "64Mi", "hugepages-1Gi", "2Gi")
	if err := tree.EnsureRoot(NodeValues(whole, nil, 0)); err != nil {
		t.Fatal(err)
	}
	amounts := list("cpu", "1", "memory", "1Mi", "hugepages-2Mi", "6Mi")
	for uid, c := range map[string]v1.Container{
		"asks":    ctr(amounts, amounts),
		"some":    ctr(list("cpu", "1", "hugepages-1Gi", "1Gi"), list("hugepages-1Gi", "1Gi")),
		"nothing": {},
	} {
		p := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)},
			Spec:       v1.PodSpec{Containers: []v1.Container{c}},
		}
		if err := tree.MakePod(p); err != nil {
			t.Fatal(err)
		}
	}
	const unlimited = "9223372036854775807"
	for dir, want := range map[string][2]string{
		"kubepods":                       {"67108864", "2147483648"},
		"kubepods/burstable":             {unlimited, unlimited},
		"kubepods/besteffort":            {unlimited, unlimited},
		"kubepods/podasks":               {"6291456", "0"},
		"kubepods/burstable/podsome":     {"0", "1073741824"},
		"kubepods/besteffort/podnothing": {"0", "0"},
	} {
		for i, file := range []string{"hugetlb.2MB.limit_in_bytes", "hugetlb.1GB.limit_in_bytes"} {
			if got := read(t, filepath.Join(h.V1["hugetlb"], dir, file)); got != want[i] {
				t.Errorf("%s of %s = %s, want %s", file, dir, got, want[i])
			}
		}
	}
}
