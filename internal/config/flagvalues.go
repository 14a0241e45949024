package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1beta1 "k8s.io/kubelet/config/v1beta1"
)

// textOf is a flag over a named string type.
type textOf v1beta1.KubeletAuthorizationMode

func (t *textOf) Type() string       { return "string" }
func (t *textOf) String() string     { return string(*t) }
func (t *textOf) Set(s string) error { *t = textOf(s); return nil }

// labelMap is key=value pairs; a repeated flag adds to them.
type labelMap struct {
	m   *map[string]string
	set bool
}

func configurationMap(m *map[string]string) *labelMap { return &labelMap{m: m} }

func (l *labelMap) Type() string { return "mapStringString" }

func (l *labelMap) String() string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(*l.m)) {
		out = append(out, k+"="+(*l.m)[k])
	}
	return strings.Join(out, ",")
}

func (l *labelMap) Set(s string) error {
	if !l.set {
		*l.m, l.set = map[string]string{}, true
	}
	for pair := range strings.SplitSeq(s, ",") {
		if pair == "" {
			continue
		}
		k, v, _ := strings.Cut(pair, "=")
		if k = strings.TrimSpace(k); k == "" {
			return errMalformedPair
		}
		(*l.m)[k] = strings.TrimSpace(v)
	}
	return nil
}

// reservedMemory is N:type=quantity,type=quantity; the flag may be repeated.
type reservedMemory struct {
	list *[]v1beta1.MemoryReservation
	set  bool
}

func (r *reservedMemory) Type() string { return "reserved-memory" }

func (r *reservedMemory) String() string {
	var out []string
	for _, m := range *r.list {
		var limits []string
		for _, name := range slices.Sorted(maps.Keys(m.Limits)) {
			q := m.Limits[name]
			limits = append(limits, string(name)+"="+q.String())
		}
		out = append(out, fmt.Sprintf("%d:%s", m.NumaNode, strings.Join(limits, ",")))
	}
	return strings.Join(out, ";")
}

func (r *reservedMemory) Set(s string) error {
	if !r.set {
		*r.list, r.set = nil, true
	}
	for part := range strings.SplitSeq(s, ";") {
		node, rest, ok := strings.Cut(part, ":")
		if !ok {
			return fmt.Errorf("%q: want NUMA-node:type=quantity", part)
		}
		n, err := strconv.ParseInt(strings.TrimSpace(node), 10, 32)
		if err != nil {
			return fmt.Errorf("%q: the NUMA node is not a number", node)
		}
		m := v1beta1.MemoryReservation{NumaNode: int32(n), Limits: v1.ResourceList{}}
		for pair := range strings.SplitSeq(rest, ",") {
			name, amount, ok := strings.Cut(pair, "=")
			if !ok {
				return fmt.Errorf("%q: want type=quantity", pair)
			}
			q, err := resource.ParseQuantity(strings.TrimSpace(amount))
			if err != nil {
				return fmt.Errorf("%q: %w", pair, err)
			}
			m.Limits[v1.ResourceName(strings.TrimSpace(name))] = q
		}
		*r.list = append(*r.list, m)
	}
	return nil
}

// taints is key=value:effect pairs; a value may be missing.
type taints struct {
	list *[]v1.Taint
	set  bool
}

func (t *taints) Type() string { return "list" }

func (t *taints) String() string {
	var out []string
	for _, taint := range *t.list {
		out = append(out, taint.ToString())
	}
	return strings.Join(out, ",")
}

func (t *taints) Set(s string) error {
	if !t.set {
		*t.list, t.set = nil, true
	}
	for spec := range strings.SplitSeq(s, ",") {
		if spec == "" {
			continue
		}
		pair, effect, ok := strings.Cut(spec, ":")
		key, value, _ := strings.Cut(pair, "=")
		if !ok || key == "" {
			return fmt.Errorf("invalid taint spec: %v", spec)
		}
		*t.list = append(*t.list, v1.Taint{Key: key, Value: value, Effect: v1.TaintEffect(effect)})
	}
	return nil
}
