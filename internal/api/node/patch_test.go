package node

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// someNode returns a node with random values in fields that can differ.
func someNode(r *rand.Rand) *v1.Node {
	some := func(of ...string) map[string]string {
		out := map[string]string{}
		for _, name := range of {
			if n := r.IntN(3); n > 0 {
				out[name] = fmt.Sprint(n)
			}
		}
		return out
	}
	amounts := func() v1.ResourceList {
		out := v1.ResourceList{}
		for name, n := range some("cpu", "memory", "example.com/gpu") {
			out[v1.ResourceName(name)] = resource.MustParse(n)
		}
		return out
	}
	n := &v1.Node{}
	n.Name, n.Labels, n.Annotations = "node1", some("a", "b/c"), some("x")
	n.Finalizers = []string{"example.com/keep"} // of another client
	n.Spec.PodCIDR = fmt.Sprint(r.IntN(3))
	st := &n.Status
	st.Capacity, st.Allocatable = amounts(), amounts()
	for _, i := range r.Perm(4) {
		if c := r.IntN(4); c > 0 {
			st.Conditions = append(st.Conditions, v1.NodeCondition{
				Type:              v1.NodeConditionType(fmt.Sprint("Type", i)),
				Status:            v1.ConditionTrue,
				Reason:            []string{"", "Why"}[r.IntN(2)],
				Message:           fmt.Sprint(c),
				LastHeartbeatTime: metav1.Unix(int64(c), 0),
			})
		}
	}
	for range r.IntN(4) {
		st.Addresses = append(st.Addresses, v1.NodeAddress{
			Type:    []v1.NodeAddressType{v1.NodeInternalIP, v1.NodeHostName}[r.IntN(2)],
			Address: fmt.Sprint(r.IntN(3)),
		})
	}
	for range r.IntN(3) {
		st.Images = append(st.Images, v1.ContainerImage{Names: []string{fmt.Sprint(r.IntN(3))}, SizeBytes: 1<<53 + 1})
	}
	for range r.IntN(3) {
		st.VolumesInUse = append(st.VolumesInUse, v1.UniqueVolumeName(fmt.Sprint(r.IntN(3))))
	}
	if r.IntN(2) == 0 {
		st.NodeInfo.KernelVersion = fmt.Sprint(r.IntN(3))
		st.DaemonEndpoints.KubeletEndpoint.Port = int32(r.IntN(2))
	}
	return n
}

// TestDiffRoundTrip: the patch between two nodes turns one into the other, except for the specification.
func TestDiffRoundTrip(t *testing.T) {
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 0))
		from, to := someNode(r), someNode(r)
		patch, err := diff(from, to)
		if err != nil {
			t.Fatal(err)
		}
		old, err := json.Marshal(from)
		if err != nil {
			t.Fatal(err)
		}
		text, err := strategicpatch.StrategicMergePatch(old, patch, v1.Node{})
		if err != nil {
			t.Fatalf("seed %d: apply %s: %v", seed, patch, err)
		}
		got := new(v1.Node)
		if err := json.Unmarshal(text, got); err != nil {
			t.Fatal(err)
		}
		want := to.DeepCopy()
		want.Spec = from.Spec
		for _, n := range []*v1.Node{got, want} { // addresses of the same type have no fixed order
			slices.SortFunc(n.Status.Addresses, func(a, b v1.NodeAddress) int {
				return strings.Compare(a.Address+string(a.Type), b.Address+string(b.Type))
			})
		}
		if !equality.Semantic.DeepEqual(got, want) {
			t.Fatalf("seed %d: %s makes\n%+v of\n%+v\nwant\n%+v", seed, patch, got, from, want)
		}
		if again, err := diff(got, want); err != nil || again != nil {
			t.Fatalf("seed %d: between equal nodes: %s, %v", seed, again, err)
		}
	}
}

// TestDiffIsMinimal: fields that other clients may change meanwhile are not in the patch.
func TestDiffIsMinimal(t *testing.T) {
	from := someNode(rand.New(rand.NewPCG(1, 1)))
	from.Labels = map[string]string{"a": "1", "b": "2"}
	from.Status.Conditions = []v1.NodeCondition{{
		Type:    "Ready",
		Status:  v1.ConditionFalse,
		Reason:  "No",
		Message: "not yet",
	}, {Type: "Others", Status: v1.ConditionTrue}}
	to := from.DeepCopy()
	to.Labels = map[string]string{"a": "1", "c": "3"}
	to.Status.Conditions[0].Status, to.Status.Conditions[0].Message = v1.ConditionTrue, ""
	patch, err := diff(from, to)
	want := `{"metadata":{"labels":{"b":null,"c":"3"}},"status":{"$setElementOrder/conditions":[{"type":"Ready"},` +
		`{"type":"Others"}],"conditions":[{"message":null,"status":"True","type":"Ready"}]}}`
	if err != nil || string(patch) != want {
		t.Errorf("patch %s, %v\nwant  %s", patch, err, want)
	}
}
