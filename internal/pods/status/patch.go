package status

import (
	"encoding/json"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// patch is the strategic merge patch that turns the stored status into st. It
// carries every field of ours, so that it needs no knowledge of what is stored
// but the names of what has to go. The UID guards against a pod of the same name.
func patch(uid types.UID, stored, st v1.PodStatus) ([]byte, error) {
	was, err := fields(stored)
	if err != nil {
		return nil, err
	}
	is, err := fields(st)
	if err != nil {
		return nil, err
	}
	for name := range was {
		if _, stays := is[name]; !stays && !foreign[name] {
			is[name] = nil
		}
	}
	for name := range foreign {
		delete(is, name)
	}
	is["conditions"] = ownConditions(stored, st)
	for _, name := range []string{"podIPs", "hostIPs"} {
		if list, ok := is[name].([]any); ok && was[name] != nil && fmt.Sprint(was[name]) != fmt.Sprint(is[name]) {
			// Lists merged by key have to be told that they are whole.
			is[name] = append([]any{map[string]string{"$patch": "replace"}}, list...)
		}
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid}, "status": is})
}

// foreign are fields of the status that others write.
var foreign = map[string]bool{"nominatedNodeName": true, "resourceClaimStatuses": true, "extendedResourceClaimStatus": true, "resize": true}

func fields(st v1.PodStatus) (map[string]any, error) {
	b, err := json.Marshal(st)
	if err != nil {
		return nil, fmt.Errorf("encode pod status: %w", err)
	}
	m := map[string]any{}
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("decode pod status: %w", err)
	}
	return m, nil
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
