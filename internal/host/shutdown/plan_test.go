package shutdown

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/test/kit/parity"
)

func somePod(uid string, priority, grace int64) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}}
	p.Spec.Priority, p.Spec.TerminationGracePeriodSeconds = new(int32), &grace
	*p.Spec.Priority = int32(priority)
	return p
}

func TestPlan(t *testing.T) {
	parity.Proves(t, "EVIC-41")
	second := time.Second
	for _, c := range []struct {
		name    string
		periods []Period
		pods    []*v1.Pod
		want    []Group
	}{
		{name: "nothing is planned for a node that does not wait", pods: []*v1.Pod{somePod("a", 0, 1)}},
		{
			name:    "critical pods come after all others, and a pod has its own time if that is shorter",
			periods: Periods(30*second, 10*second),
			pods: []*v1.Pod{
				somePod("critical", critical, 600),
				somePod("usual", 0, 30),
				somePod("short", critical-1, 5),
				somePod("more", critical+1000, 3),
			},
			want: []Group{
				{20 * second, []Termination{{"usual", 20 * second}, {"short", 5 * second}}},
				{10 * second, []Termination{{"critical", 10 * second}, {"more", 3 * second}}},
			},
		},
		{
			name:    "a pod belongs to the highest period that is not above it, and to the lowest if all are",
			periods: []Period{{1000, 10 * second}, {-5, 40 * second}, {200, 20 * second}},
			pods: []*v1.Pod{
				somePod("1000", 1000, 60),
				somePod("999", 999, 60),
				somePod("200", 200, 60),
				somePod("0", 0, 60),
				somePod("-5", -5, 60),
				somePod("-6", -6, 60),
			},
			want: []Group{
				{40 * second, []Termination{{"0", 40 * second}, {"-5", 40 * second}, {"-6", 40 * second}}},
				{20 * second, []Termination{{"999", 20 * second}, {"200", 20 * second}}},
				{10 * second, []Termination{{"1000", 10 * second}}},
			},
		},
		{
			name:    "a pod without a priority has that of zero, and without a grace period thirty seconds",
			periods: []Period{{0, 60 * second}, {1, second}},
			pods:    []*v1.Pod{{ObjectMeta: metav1.ObjectMeta{UID: "plain"}}},
			want:    []Group{{60 * second, []Termination{{"plain", 30 * second}}}, {Length: second}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Plan(c.pods, c.periods); !reflect.DeepEqual(got, c.want) {
				t.Errorf("planned\n%v, want\n%v", got, c.want)
			}
		})
	}
}

// TestPlanHasAllPods: for random pods and periods, each pod is terminated once, its grace period is
// the minimum of its own and that of its group, and no pod is in a group before one of lower
// priority.
func TestPlanHasAllPods(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var periods []Period
		for i := range 1 + r.IntN(5) {
			periods = append(periods, Period{int32(i*10 - 20), time.Duration(r.IntN(40)) * time.Second})
		}
		r.Shuffle(len(periods), func(i, j int) { periods[i], periods[j] = periods[j], periods[i] })
		pods := map[types.UID]*v1.Pod{}
		var list []*v1.Pod
		for i := range r.IntN(20) {
			p := somePod(string(rune('a'+i)), int64(r.IntN(60)-30), int64(1+r.IntN(60)))
			pods[p.UID], list = p, append(list, p)
		}
		groups := Plan(list, periods)
		if len(groups) != len(periods) {
			t.Fatalf("%d groups of %d periods", len(groups), len(periods))
		}
		var length time.Duration
		highest := int32(-1 << 31)
		for _, g := range groups {
			length += g.Length
			most := highest
			for _, e := range g.Pods {
				p := pods[e.UID]
				if p == nil {
					t.Fatalf("%s ends twice, or was never there", e.UID)
				}
				delete(pods, e.UID)
				own := time.Duration(*p.Spec.TerminationGracePeriodSeconds) * time.Second
				if e.Grace != min(own, g.Length) {
					t.Fatalf("grace %v of its own %v in a group of %v", e.Grace, own, g.Length)
				}
				if *p.Spec.Priority < highest {
					t.Fatalf("priority %d ends after %d", *p.Spec.Priority, highest)
				}
				most = max(most, *p.Spec.Priority)
			}
			highest = most
		}
		if len(pods) > 0 || length != Total(periods) {
			t.Fatalf("dropped: %v; %v of %v", pods, length, Total(periods))
		}
	}
}
