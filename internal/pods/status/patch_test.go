package status

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"keelson/test/kit/parity"
)

// applied is the status after an API server has applied the patch.
func applied(t *testing.T, stored, next v1.PodStatus) v1.PodStatus {
	t.Helper()
	b, err := statusPatch("uid", next)
	if err != nil {
		t.Fatal(err)
	}
	before, err := json.Marshal(v1.Pod{Status: stored})
	if err != nil {
		t.Fatal(err)
	}
	after, err := strategicpatch.StrategicMergePatch(before, b, v1.Pod{})
	if err != nil {
		t.Fatalf("patch %s: %v", b, err)
	}
	var p v1.Pod
	if err := json.Unmarshal(after, &p); err != nil {
		t.Fatal(err)
	}
	if p.UID != "uid" {
		t.Errorf("patch carries UID %q: it could hit a pod of the same name", p.UID)
	}
	return p.Status
}

func cond(t v1.PodConditionType, s v1.ConditionStatus) v1.PodCondition {
	return v1.PodCondition{Type: t, Status: s}
}

func TestPatchYieldsStatus(t *testing.T) {
	parity.Differs(t, "LIFE-12", "0120")
	gate := cond("example.com/gate", v1.ConditionTrue)
	for _, tc := range []struct {
		name               string
		stored, next, want v1.PodStatus
	}{
		{
			"fields that are over are cleared",
			v1.PodStatus{Phase: v1.PodPending, Reason: "old", Message: "old"},
			v1.PodStatus{Phase: v1.PodRunning},
			v1.PodStatus{Phase: v1.PodRunning},
		},
		{
			"conditions of others stay",
			v1.PodStatus{Conditions: []v1.PodCondition{gate, cond(v1.PodReady, v1.ConditionFalse)}},
			v1.PodStatus{Conditions: []v1.PodCondition{cond(v1.PodReady, v1.ConditionTrue)}},
			v1.PodStatus{Conditions: []v1.PodCondition{cond(v1.PodReady, v1.ConditionTrue), gate}},
		},
		{
			"reasons that are over are cleared",
			v1.PodStatus{Conditions: []v1.PodCondition{{
				Type:    v1.PodReady,
				Status:  v1.ConditionFalse,
				Reason:  "ContainersNotReady",
				Message: "[a]",
			}}},
			v1.PodStatus{Conditions: []v1.PodCondition{cond(v1.PodReady, v1.ConditionTrue)}},
			v1.PodStatus{Conditions: []v1.PodCondition{cond(v1.PodReady, v1.ConditionTrue)}},
		},
		{
			"addresses are replaced, not merged",
			v1.PodStatus{PodIP: "10.0.0.1", PodIPs: []v1.PodIP{{IP: "10.0.0.1"}}},
			v1.PodStatus{PodIP: "10.0.0.2", PodIPs: []v1.PodIP{{IP: "10.0.0.2"}}},
			v1.PodStatus{PodIP: "10.0.0.2", PodIPs: []v1.PodIP{{IP: "10.0.0.2"}}},
		},
		{
			"the node's addresses are replaced, not added to",
			v1.PodStatus{HostIP: "10.0.0.1", HostIPs: []v1.HostIP{{IP: "10.0.0.1"}}},
			v1.PodStatus{HostIP: "fd00::1", HostIPs: []v1.HostIP{{IP: "fd00::1"}, {IP: "10.0.0.1"}}},
			v1.PodStatus{HostIP: "fd00::1", HostIPs: []v1.HostIP{{IP: "fd00::1"}, {IP: "10.0.0.1"}}},
		},
		{
			"the node has no address any more",
			v1.PodStatus{HostIP: "10.0.0.1", HostIPs: []v1.HostIP{{IP: "10.0.0.1"}}},
			v1.PodStatus{},
			v1.PodStatus{},
		},
		{
			"the node has an address less",
			v1.PodStatus{HostIP: "10.0.0.1", HostIPs: []v1.HostIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}}},
			v1.PodStatus{HostIP: "10.0.0.1", HostIPs: []v1.HostIP{{IP: "10.0.0.1"}}},
			v1.PodStatus{HostIP: "10.0.0.1", HostIPs: []v1.HostIP{{IP: "10.0.0.1"}}},
		},
		{
			"fields of others are not written",
			v1.PodStatus{NominatedNodeName: "theirs"},
			v1.PodStatus{NominatedNodeName: "", Phase: v1.PodPending},
			v1.PodStatus{NominatedNodeName: "theirs", Phase: v1.PodPending},
		},
		{
			"nor are those of the allocating driver",
			v1.PodStatus{
				NodeAllocatableResourceClaimStatuses: []v1.NodeAllocatableResourceClaimStatus{{}},
				ResourceClaimStatuses:                []v1.PodResourceClaimStatus{{Name: "gpu"}},
			},
			// as it was once
			v1.PodStatus{
				NodeAllocatableResourceClaimStatuses: []v1.NodeAllocatableResourceClaimStatus{{}, {}},
				Phase:                                v1.PodPending,
			},
			v1.PodStatus{
				NodeAllocatableResourceClaimStatuses: []v1.NodeAllocatableResourceClaimStatus{{}},
				ResourceClaimStatuses:                []v1.PodResourceClaimStatus{{Name: "gpu"}},
				Phase:                                v1.PodPending,
			},
		},
		{
			"container statuses are replaced as a list",
			v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "a"}, {Name: "b"}}},
			v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "b", Ready: true}}},
			v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "b", Ready: true}}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := applied(t, tc.stored, tc.next)
			for _, c := range tc.want.Conditions {
				if g := find(got.Conditions, c.Type); g == nil || g.Status != c.Status || g.Reason != c.Reason ||
					g.Message != c.Message {
					t.Errorf("condition %s = %v, want %v", c.Type, g, c)
				}
			}
			if len(got.Conditions) != len(tc.want.Conditions) {
				t.Errorf("got %d conditions, want %d", len(got.Conditions), len(tc.want.Conditions))
			}
			got.Conditions, tc.want.Conditions = nil, nil
			if !equality.Semantic.DeepEqual(got, tc.want) {
				t.Errorf("got  %+v\nwant %+v", got, tc.want)
			}
		})
	}
}

// ours are the fields of a status that the agent writes. A new field of a later API has to
// be added here or to foreign: otherwise the agent would clear it.
var ours = []string{
	"observedGeneration", "phase", "conditions", "message", "reason", "hostIP", "hostIPs", "podIP", "podIPs",
	"startTime",
	"initContainerStatuses", "containerStatuses", "qosClass", "ephemeralContainerStatuses", "allocatedResources",
	"resources",
}

func TestEveryStatusFieldHasOwner(t *testing.T) {
	for i := range reflect.TypeFor[v1.PodStatus]().NumField() {
		name, _, _ := strings.Cut(reflect.TypeFor[v1.PodStatus]().Field(i).Tag.Get("json"), ",")
		if slices.Contains(ours, name) == foreign[name] {
			t.Errorf("%s: ours %t, of others %t", name, slices.Contains(ours, name), foreign[name])
		}
	}
}
