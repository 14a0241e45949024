package status

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// patch is the strategic merge patch that turns the stored status into st. It
// carries every field of ours, so that it needs no knowledge of what is stored
// but the names of what has to go. The UID guards against a pod of the same name.
func patch(uid types.UID, stored, st v1.PodStatus) ([]byte, error) {
	// What is to be said otherwise than as the status has it.
	otherwise := map[string]any{"conditions": ownConditions(stored, st)}
	is := says(st)
	for name := range says(stored) {
		if !is[name] && !foreign[name] && name != "conditions" {
			otherwise[name] = nil
		}
	}
	st.Conditions = nil
	st.NominatedNodeName, st.ResourceClaimStatuses, st.ExtendedResourceClaimStatus, st.Resize = "", nil, nil, ""
	st.NodeAllocatableResourceClaimStatuses = nil
	// Lists merged by key have to be told that they are whole.
	if len(st.PodIPs) > 0 && len(stored.PodIPs) > 0 && !slices.Equal(st.PodIPs, stored.PodIPs) {
		otherwise["podIPs"], st.PodIPs = whole(st.PodIPs), nil
	}
	if len(st.HostIPs) > 0 && len(stored.HostIPs) > 0 && !slices.Equal(st.HostIPs, stored.HostIPs) {
		otherwise["hostIPs"], st.HostIPs = whole(st.HostIPs), nil
	}
	return encode(uid, st, otherwise)
}

// foreign are fields of the status that others write.
var foreign = map[string]bool{"nominatedNodeName": true, "resourceClaimStatuses": true, "extendedResourceClaimStatus": true,
	"nodeAllocatableResourceClaimStatuses": true, "resize": true}

// says are the names of the fields that say something, as they are encoded.
func says(st v1.PodStatus) map[string]bool {
	said := map[string]bool{}
	for field, v := range reflect.ValueOf(st).Fields() {
		if v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0 || v.Kind() == reflect.Map && v.Len() == 0 {
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		said[name] = true
	}
	return said
}

func whole[T any](list []T) []any {
	out := []any{map[string]string{"$patch": "replace"}}
	for _, e := range list {
		out = append(out, e)
	}
	return out
}

// encode writes the patch: the status, and after it what is said otherwise. Both are
// objects, and no field is in both.
func encode(uid types.UID, st v1.PodStatus, otherwise map[string]any) ([]byte, error) {
	meta, err := json.Marshal(map[string]any{"uid": uid})
	if err != nil {
		return nil, fmt.Errorf("encode the pod's UID: %w", err)
	}
	fields, err := json.Marshal(st)
	if err != nil {
		return nil, fmt.Errorf("encode pod status: %w", err)
	}
	more, err := json.Marshal(otherwise)
	if err != nil {
		return nil, fmt.Errorf("encode pod status: %w", err)
	}
	fields = fields[:len(fields)-1] // the brace comes with the others
	if len(fields) > 1 {
		fields = append(fields, ',')
	}
	return slices.Concat([]byte(`{"metadata":`), meta, []byte(`,"status":`), fields, more[1:], []byte("}")), nil
}

// ownConditions are the conditions we write; one of ours that is over is deleted.
// Conditions are merged field by field: a reason that is over has to be told.
func ownConditions(stored, st v1.PodStatus) []any {
	var list []any
	for _, c := range st.Conditions {
		if slices.Contains(owned, c.Type) {
			list = append(list, wholeCondition{c, orNull(c.Reason), orNull(c.Message)})
		}
	}
	for _, c := range stored.Conditions {
		if slices.Contains(owned, c.Type) && c.Type != v1.DisruptionTarget && find(st.Conditions, c.Type) == nil {
			list = append(list, map[string]any{"type": c.Type, "$patch": "delete"})
		}
	}
	return list
}

// wholeCondition is a condition with no field left out. Its own fields stand for
// those of the same names in the condition.
type wholeCondition struct {
	v1.PodCondition
	Reason  *string `json:"reason"`
	Message *string `json:"message"`
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
