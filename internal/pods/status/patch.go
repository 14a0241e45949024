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

// statusPatch is the strategic merge patch that makes any stored status equal to st: it has
// every owned field, null for those that st omits, and directives that replace lists
// instead of merging them. The UID protects a newer pod of the same name.
func statusPatch(uid types.UID, st v1.PodStatus) ([]byte, error) {
	otherwise := map[string]any{"conditions": ownConditions(st)} // fields that differ from their encoding in st
	own := ownFields(st)
	for field, v := range reflect.ValueOf(own).Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name != "conditions" && !foreign[name] && isEmpty(v) {
			otherwise[name] = nil
		}
	}
	if len(own.PodIPs) > 0 {
		otherwise["podIPs"], own.PodIPs = whole(own.PodIPs), nil
	}
	if len(own.HostIPs) > 0 {
		otherwise["hostIPs"], own.HostIPs = whole(own.HostIPs), nil
	}
	return encode(uid, own, otherwise)
}

// isEmpty reports whether the field is left out when it is encoded.
func isEmpty(v reflect.Value) bool {
	return v.IsZero() || (v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.Len() == 0
}

// foreign are the fields of the status that other clients write.
var foreign = map[string]bool{
	"nominatedNodeName":                    true,
	"resourceClaimStatuses":                true,
	"extendedResourceClaimStatus":          true,
	"nodeAllocatableResourceClaimStatuses": true,
	"resize":                               true,
}

func whole[T any](list []T) []any {
	out := []any{map[string]string{"$patch": "replace"}}
	for _, e := range list {
		out = append(out, e)
	}
	return out
}

// encode writes the patch: the fields of the status followed by those of otherwise. No
// field is in both.
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
	fields = fields[:len(fields)-1] // the closing brace follows the other fields
	if len(fields) > 1 {
		fields = append(fields, ',')
	}
	return slices.Concat([]byte(`{"metadata":`), meta, []byte(`,"status":`), fields, more[1:], []byte("}")), nil
}

// ownConditions are the owned conditions, with delete directives for those that st does
// not have. The API server merges conditions by field, so an empty reason has to be sent.
func ownConditions(st v1.PodStatus) []any {
	var list []any
	for _, c := range st.Conditions {
		if isOwn(c) {
			list = append(list, wholeCondition{c, orNull(c.Reason), orNull(c.Message)})
		}
	}
	for _, t := range owned {
		if t != v1.DisruptionTarget && find(st.Conditions, t) == nil {
			list = append(list, map[string]any{"type": t, "$patch": "delete"})
		}
	}
	return list
}

// wholeCondition is a condition whose empty fields are encoded, too. Its own fields shadow
// those of the condition.
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
