package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	v1beta1 "k8s.io/kubelet/config/v1beta1"
	netutils "k8s.io/utils/net"
)

// textOf is a flag over a named string type.
type textOf v1beta1.KubeletAuthorizationMode

func (t *textOf) Type() string       { return "string" }
func (t *textOf) String() string     { return string(*t) }
func (t *textOf) Set(s string) error { *t = textOf(s); return nil }

// labelMap is a flag with key=value pairs; a repeated flag adds to them.
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
	if s == "" {
		return nil
	}
	if !r.set {
		*r.list, r.set = nil, true
	}
	for part := range strings.SplitSeq(s, ";") {
		node, rest, ok := strings.Cut(part, ":")
		if !ok || strings.Contains(rest, ":") {
			return fmt.Errorf("%q: want NUMA-node:type=quantity", part)
		}
		n, err := strconv.ParseInt(node, 10, 32)
		if err != nil {
			return fmt.Errorf("%q: the NUMA node is not a number", node)
		}
		m := v1beta1.MemoryReservation{NumaNode: int32(n), Limits: v1.ResourceList{}}
		for pair := range strings.SplitSeq(rest, ",") {
			name, amount, ok := strings.Cut(pair, "=")
			if !ok || name != "memory" && !strings.HasPrefix(name, v1.ResourceHugePagesPrefix) {
				return fmt.Errorf("%q: want memory=quantity or hugepages-<size>=quantity", pair)
			}
			q, err := resource.ParseQuantity(amount)
			if err != nil {
				return fmt.Errorf("%q: %w", pair, err)
			}
			m.Limits[v1.ResourceName(name)] = q
		}
		*r.list = append(*r.list, m)
	}
	return nil
}

// address is an IP address; an empty value does not change it.
type address struct{ text *string }

func (a address) Type() string   { return "ip" }
func (a address) String() string { return *a.text }

func (a address) Set(s string) error {
	if s == "" {
		return nil
	}
	if netutils.ParseIPSloppy(s) == nil {
		return fmt.Errorf("%q is not a valid IP address", s)
	}
	*a.text = s
	return nil
}

// taints is a list of key=value:effect; the value may be missing. The last flag counts. An entry that ends in - would
// remove a taint, and has no effect, since there is none yet.
type taints struct{ list *[]v1.Taint }

func (t taints) Type() string { return "list" }

func (t taints) String() string {
	var out []string
	for _, taint := range *t.list {
		out = append(out, taint.ToString())
	}
	return strings.Join(out, ",")
}

func (t taints) Set(s string) error {
	var list []v1.Taint
	for spec := range strings.SplitSeq(s, ",") {
		if s == "" {
			break
		}
		spec, away := strings.CutSuffix(spec, "-")
		pair, effect, named := strings.Cut(spec, ":")
		key, value, _ := strings.Cut(pair, "=")
		why := validation.IsQualifiedName(key)
		if named || !away {
			why = append(why, validation.IsValidLabelValue(value)...)
			if !slices.Contains([]string{"NoSchedule", "PreferNoSchedule", "NoExecute"}, effect) {
				why = append(why, "effect must be NoSchedule, PreferNoSchedule or NoExecute")
			}
		}
		if len(why) > 0 {
			return fmt.Errorf("invalid taint spec: %v, %s", spec, strings.Join(why, "; "))
		}
		if away {
			continue
		}
		taint := v1.Taint{
			Key:    key,
			Value:  value,
			Effect: v1.TaintEffect(effect),
		}
		if slices.ContainsFunc(list, func(o v1.Taint) bool { return o.MatchTaint(&taint) }) {
			return fmt.Errorf("duplicated taints with the same key and effect: %v", spec)
		}
		list = append(list, taint)
	}
	*t.list = list
	return nil
}
