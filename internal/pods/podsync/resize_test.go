package podsync

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/allocation"
	"keelson/internal/pods/pod"
	"keelson/internal/runtime/container"
)

// fakeCgroups is the cgroup of one pod.
type fakeCgroups struct {
	CgroupMaker
	size, asked allocation.Size
	gone        bool
	partly      bool  // it is gone in one hierarchy only
	refuses     error // to be made
	unread      error // what reading it fails with
	sticks      error // to be changed
	logged      *[]string
}

func (f *fakeCgroups) EnsurePod(context.Context, *v1.Pod) error {
	*f.logged = append(*f.logged, "make")
	if f.refuses == nil {
		f.gone, f.size = false, f.asked
	}
	return f.refuses
}

func (f *fakeCgroups) Gone(*v1.Pod) bool { return f.gone && !f.partly }

func (f *fakeCgroups) Size(*v1.Pod) (now, next allocation.Size, err error) {
	if f.gone {
		return now, next, fs.ErrNotExist
	}
	if f.unread != nil {
		return now, next, f.unread
	}
	return f.size, f.asked, nil
}

func (f *fakeCgroups) Resize(_ *v1.Pod, res v1.ResourceName, limit bool) error {
	if f.sticks != nil {
		return f.sticks
	}
	switch {
	case res == v1.ResourceMemory:
		f.size.Memory = f.asked.Memory
	case limit:
		f.size.Quota = f.asked.Quota
	default:
		f.size.Weight, f.size.Shares = f.asked.Weight, f.asked.Shares
	}
	*f.logged = append(*f.logged, fmt.Sprintf("pod %s limit=%t", res, limit))
	return nil
}

func (f *fakeCgroups) MemoryUsage(*v1.Pod) (int64, error) { return 50, nil }

// updatedContainers records updates of containers.
type updatedContainers struct {
	logged  *[]string
	objects error // of the runtime, to the update
}

func (c updatedContainers) UpdateResources(_ context.Context, p *v1.Pod, name, _ string) error {
	_, spec, _ := pod.Find(p, name)
	whole := "no pod"
	if p.Spec.Resources != nil {
		whole = "pod " + p.Spec.Resources.Limits.Memory().String() + " " + p.Spec.Resources.Limits.Cpu().String()
	}
	*c.logged = append(*c.logged,
		fmt.Sprintf("%s %s %s of %s", name, spec.Resources.Limits.Memory(), spec.Resources.Limits.Cpu(), whole))
	return nil
}

func (c updatedContainers) UpdateSandbox(_ context.Context, _ *v1.Pod, id string, s container.PodSize) error {
	*c.logged = append(*c.logged, fmt.Sprintf("update %s %d %d/%d %d", id, s.Memory, s.Quota, s.Period, s.Shares))
	return c.objects
}

func (updatedContainers) MemoryUsage(context.Context, string) (int64, error) { return 10, nil }

// forced is an allocation with the actuated resources and the results of attempts.
type forced struct {
	Allocated
	force *v1.Pod
	tried []error
}

func (f *forced) Starting(*v1.Pod, string, v1.ResourceRequirements) {}
func (f *forced) Gap(*v1.Pod, pod.Runtime) allocation.Gap           { return allocation.Gap{} }
func (f *forced) Progress(*v1.Pod, bool)                            {}
func (f *forced) Failing(types.UID) bool                            { return false }
func (f *forced) Actuated(*v1.Pod) *v1.Pod                          { return f.force }
func (f *forced) SetActuated(_ *v1.Pod, name string, r v1.ResourceRequirements) {
	f.force = allocation.Resources{Containers: map[string]v1.ResourceRequirements{name: r}}.On(f.force)
}
func (f *forced) SetPodActuated(*v1.Pod)                         {}
func (f *forced) Tried(_ *v1.Pod, _ time.Duration, failed error) { f.tried = append(f.tried, failed) }

type refreshed struct{ Relister }

func (refreshed) Refresh(context.Context, types.UID) (pod.Runtime, error) { return pod.Runtime{}, nil }

func holding(cpu, memory string, container *v1.ResourceRequirements) *v1.Pod {
	limits := v1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "app", Namespace: "default", UID: "u"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main"}}},
	}
	if container != nil {
		p.Spec.Resources = &v1.ResourceRequirements{Limits: limits}
		p.Spec.Containers[0].Resources = *container
	} else {
		p.Spec.Containers[0].Resources = v1.ResourceRequirements{Limits: limits}
	}
	return p
}

func TestWritesOfAResize(t *testing.T) {
	small := allocation.Size{Weight: 10, Shares: 20, Quota: 1000, Period: 9, Memory: 100}
	large := allocation.Size{Weight: 10, Shares: 20, Quota: 2000, Period: 9, Memory: 200}
	free := allocation.Size{
		Weight: 10,
		Shares: 20,
		Quota:  allocation.Unlimited,
		Period: 9,
		Memory: allocation.Unlimited,
	}
	heavy := free
	heavy.Weight, heavy.Shares = 30, 60
	both := []allocation.Change{
		{Container: "main", ID: "c1", Resource: v1.ResourceMemory, Now: 100, Next: 200, Limit: true},
		{Container: "main", ID: "c1", Resource: v1.ResourceCPU, Now: 1000, Next: 2000, Limit: true},
	}
	less := []allocation.Change{
		{Container: "main", ID: "c1", Resource: v1.ResourceMemory, Now: 200, Next: 100, Limit: true},
		{Container: "main", ID: "c1", Resource: v1.ResourceCPU, Now: 2000, Next: 1000, Limit: true},
	}
	for _, tc := range []struct {
		name       string
		was, wants *v1.Pod
		cgroup     fakeCgroups
		changes    []allocation.Change
		objects    error
		want       []string
		fails      string // what users are shown
		wrote      bool   // something else than containers
	}{
		{
			name:    "one resource after the other, the pod before the container",
			was:     holding("1", "100", nil),
			wants:   holding("2", "200", nil),
			cgroup:  fakeCgroups{size: small, asked: large},
			changes: both,
			want: []string{
				"update s1 200 1000/9 20",
				"pod memory limit=true",
				"main 200 1 of no pod",
				"update s1 200 2000/9 20",
				"pod cpu limit=true",
				"main 200 2 of no pod",
			},
		},
		{
			name:    "also where the limit is the pod's",
			was:     holding("1", "100", &v1.ResourceRequirements{}),
			wants:   holding("2", "200", &v1.ResourceRequirements{}),
			cgroup:  fakeCgroups{size: small, asked: large},
			changes: both,
			want: []string{
				"update s1 200 1000/9 20",
				"pod memory limit=true",
				"main 0 0 of pod 200 1",
				"update s1 200 2000/9 20",
				"pod cpu limit=true",
				"main 0 0 of pod 200 2",
			},
		},
		{
			name:    "a pod that shrinks does so last",
			was:     holding("2", "200", nil),
			wants:   holding("1", "100", nil),
			cgroup:  fakeCgroups{size: large, asked: small},
			changes: less,
			want: []string{
				"main 100 2 of no pod",
				"update s1 100 2000/9 20",
				"pod memory limit=true",
				"main 100 1 of no pod",
				"update s1 100 1000/9 20",
				"pod cpu limit=true",
			},
		},
		{
			name:   "of a pod without a limit the runtime does not get that of a container",
			was:    holding("1", "100", nil),
			wants:  holding("2", "200", nil),
			cgroup: fakeCgroups{size: free, asked: heavy},
			want:   []string{"update s1 -1 -1/9 60", "pod cpu limit=false"},
			wrote:  true,
		},
		{name: "the runtime objects, and nothing is written", was: holding("1", "100", nil), wants: holding("2", "200", nil),
			cgroup: fakeCgroups{size: small, asked: large}, changes: both, objects: status.Error(codes.Unknown, "no"),
			want: []string{"update s1 200 1000/9 20"},
			fails: "failed to notify runtime for UpdatePodSandboxResources (resource=memory); resize rejected: " +
				`updatePodSandboxResources failed for sanboxID "s1": rpc error: code = Unknown desc = no`},
		{name: "the kernel objects, and the runtime hears of it", was: holding(
			"1",
			"100",
			nil,
		), wants: holding("2", "200", nil), cgroup: fakeCgroups{
			size:   small,
			asked:  large,
			sticks: errors.New("no"),
		}, changes: both,
			want: []string{"update s1 200 1000/9 20", "update s1 100 1000/9 20"}, fails: "no"},
		{
			name:   "a cgroup that is as it should be",
			was:    holding("1", "100", nil),
			wants:  holding("1", "100", nil),
			cgroup: fakeCgroups{size: small, asked: small},
		},
		{
			name:   "one that was removed is made",
			was:    holding("1", "100", nil),
			wants:  holding("1", "100", nil),
			cgroup: fakeCgroups{gone: true, asked: small},
			want:   []string{"make"},
		},
		{name: "or it cannot be", was: holding("1", "100", nil), wants: holding("1", "100", nil),
			cgroup: fakeCgroups{
				gone:    true,
				asked:   small,
				refuses: errors.New("no"),
			}, want: []string{"make"}, fails: "no"},
		{name: "one that cannot be read", was: holding("1", "100", nil), wants: holding("1", "100", nil),
			cgroup: fakeCgroups{unread: errors.New("bad number")},
			fails:  `unable to get pod cgroup memory config for pod "app_default(u)"`},
		{name: "nothing is written where the pod uses more than it may",
			was: holding("1", "100", nil), wants: holding("1", "20", nil),
			cgroup: fakeCgroups{size: small, asked: allocation.Size{Weight: 10, Quota: 1000, Memory: 20}},
			fails:  "cannot decrease memory limits: attempting to set pod memory limit (20) below current usage (50)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var logged []string
			m := newMeasured(t)
			a := &forced{force: tc.was}
			tc.cgroup.logged = &logged
			m.cfg.Cgroups.CgroupMaker, m.cfg.Cgroups.CgroupResizer = &tc.cgroup, &tc.cgroup
			m.cfg.Runtime.Updater, m.cfg.Runtime.Relister = updatedContainers{
				logged:  &logged,
				objects: tc.objects,
			}, refreshed{}
			m.cfg.Allocation.Allocated, m.cfg.Allocation.Actuation, m.cfg.Allocation.Resizes = a, a, a
			r := resizing{
				Gap:     allocation.Gap{Update: tc.changes},
				cfg:     &m.cfg,
				pod:     tc.wants,
				sandbox: "s1",
			}
			wrote, err := r.enforce(t.Context())
			shown := ""
			if err != nil {
				shown = pod.TextOf(err)
			}
			if !slices.Equal(logged, tc.want) || shown != tc.fails || wrote != (tc.wrote || len(tc.changes) > 0) {
				t.Errorf("wrote %t %q, shows %q; want %q and %q", wrote, logged, shown, tc.want, tc.fails)
			}
		})
	}
}
