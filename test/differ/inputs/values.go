package inputs

import (
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// values generates values for fields. words has the values that the documents have in fields of a name.
type values struct {
	rng   *rand.Rand
	words map[string][]any
}

// learn takes the scalars of a document as words.
func (v *values) learn(doc map[string]any, t reflect.Type) {
	for _, s := range spots(doc, t) {
		switch s.get().(type) {
		case string, bool, float64, int64:
			v.words[s.name] = append(v.words[s.name], s.get())
		}
	}
}

func pick[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }

var oddStrings = []string{
	"", " ", "a", "A", "-", ".", "..", "../x", "a/../b", "/abs", "/", "a/b", "a/b/c", "a.b", "a_b", "-a", "a-", "a:b",
	":", "$(X)",
	"0", "1", "-1", "1.5", "1e3", "100m", "10%", "0x10", "true", "null", "~", "latest", "None", "none", "Always",
	"Never", "default",
	"web", "main", "host", "example.com/x", "Example.com/x", "x/y/z", "kubernetes.io/x", "metadata.name",
	"status.podIP", "v1", "v2",
	"10.0.0.1", "10.0.0.01", "::1", "::ffff:10.0.0.1", "fe80::1%eth0", "256.1.1.1", "localhost", "http://x", "ünïcode",
	"\u0000", "a\nb", "\t",
	"a,b", "a=b", "a b", "1Gi", "5Mi", "2000000Ki", "hugepages-2Mi", "cpu", "memory", "In", "Exists", "TCP", "File",
	"x'y", `x"y`, "[x]", "{x}",
}

var (
	longLabel = strings.Repeat("a", 63)
	longName  = strings.Repeat("a", 253)
	oddInts   = []int64{-1, 0, 1, 2, 3, 20, 21, 63, 64, 80, 100, 101, 255, 256, 420, 511, 512, 599, 600, 3600, 65535,
		65536, 1 << 31, 1<<31 - 1, 1 << 32, -1 << 31, -1<<31 - 1, 1<<63 - 1}
	quantities = []any{"1", "100m", "1Gi", "-1", "0", "1.5", "0.0001", "1n", "1u", "99999999999999999999", "abc", "",
		"1e3", "10%", "1500m", "4Mi", "2Mi", "3Mi", "1k", "0.1", "1E", "12e-3", int64(1), 0.5, int64(-3), "+1", " 1"}
	times     = []any{"2026-01-01T00:00:00Z", "", nil, "yesterday", int64(5)}
	durations = []any{"1s", "0s", "-1s", "5m0s", "999ms", "300s", "1h", "3s", "2s", "1", int64(5), "", "1d", "10s",
		"100ms", "1001ms", "301s"}
)

// str generates a string for a field of this name.
func (v *values) str(name string) any {
	switch n := v.rng.IntN(20); {
	case n < 11 && len(v.words[name]) > 0:
		return pick(v.rng, v.words[name])
	case n == 18:
		return pick(v.rng,
			[]string{longLabel, longLabel + "a", longName, longName + "a", strings.Repeat("a.", 130),
				strings.Repeat("é", 40)})
	case n == 19:
		return pick(v.rng, v.anyWords())
	case n > 14 && len(v.words[name]) > 0:
		return v.twisted(pick(v.rng, v.words[name]))
	}
	return pick(v.rng, oddStrings)
}

func (v *values) anyWords() []any {
	return v.words[pick(v.rng, slices.Sorted(maps.Keys(v.words)))]
}

// twisted changes one thing about a word.
func (v *values) twisted(word any) any {
	s, ok := word.(string)
	if !ok || s == "" {
		return word
	}
	at := v.rng.IntN(len(s))
	switch v.rng.IntN(6) {
	case 0:
		return strings.ToUpper(s)
	case 1:
		return s[:at] + s[at+1:]
	case 2:
		return s[:at] + string(pick(v.rng, []rune("-./:_@ ,=$A0"))) + s[at:]
	case 3:
		return s + pick(v.rng, []string{"/", ".", "-", " ", "x", ":", "@", "0"})
	case 4:
		return " " + s
	}
	return s + s
}

// of generates a value of a type for a field of this name.
func (v *values) of(t reflect.Type, name string, depth int) any {
	t = deref(t)
	switch {
	case t == nil:
		return v.str(name)
	case t == reflect.TypeFor[resource.Quantity](), t == reflect.TypeFor[resource.QuantityValue]():
		return pick(v.rng, quantities)
	case t == reflect.TypeFor[intstr.IntOrString]():
		return pick(v.rng,
			[]any{int64(80), "web", int64(0), int64(65536), "http", "80", "", int64(-1), "a--b", "UPPER", "-",
				"averyverylongportname"})
	case t == reflect.TypeFor[metav1.Time]() || t == reflect.TypeFor[metav1.MicroTime]():
		return pick(v.rng, times)
	case t == reflect.TypeFor[metav1.Duration]():
		return pick(v.rng, durations)
	}
	switch t.Kind() {
	case reflect.Bool:
		return v.rng.IntN(2) == 0
	case reflect.String:
		return v.str(name)
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint32, reflect.Uint8, reflect.Uint64:
		if len(v.words[name]) > 0 && v.rng.IntN(3) == 0 {
			return pick(v.rng, v.words[name])
		}
		return pick(v.rng, oddInts)
	case reflect.Float32, reflect.Float64:
		return pick(v.rng, []any{0.5, 1.0, 0.0, -0.1, 1.1, int64(1)})
	case reflect.Slice:
		l := &list{}
		for range v.rng.IntN(3) {
			l.items = append(l.items, v.of(t.Elem(), name, depth+1))
		}
		return l
	case reflect.Map:
		m := map[string]any{}
		for range 1 + v.rng.IntN(2) {
			m[v.key(name)] = v.of(t.Elem(), name, depth+1)
		}
		return m
	case reflect.Struct:
		return v.structure(t, depth)
	}
	return v.str(name)
}

func (v *values) key(name string) string {
	if k, ok := v.str(name + " key").(string); ok && v.rng.IntN(2) == 0 {
		return k
	}
	return pick(v.rng,
		[]string{"cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "hugepages-1Gi", "hugepages-x",
			"example.com/gpu", "requests.x/y", "storage", "app", "a.b/c", "pods", "kubernetes.io/batch-cpu",
			"limits.cpu", "nvidia", "Bad Key", "memory.available", "nodefs.available", "pid"})
}

// structure generates a struct in which some fields are set.
func (v *values) structure(t reflect.Type, depth int) any {
	doc := map[string]any{}
	fields := fieldsOf(t)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if v.rng.IntN(depth+2) == 0 && depth < 4 {
			doc[name] = v.of(fields[name], name, depth+1)
		}
	}
	return doc
}
