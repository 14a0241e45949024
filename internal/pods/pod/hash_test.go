package pod

import (
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"

	"keelson/test/kit/parity"
)

func TestHashMatchesUpstream(t *testing.T) {
	c := &v1.Container{
		Name:    "main",
		Image:   "registry.k8s.io/e2e-test-images/busybox:1.37.0-1",
		Command: []string{"ignored"},
	}
	if got, want := Hash(c), "a785d335"; got != want {
		t.Errorf("Hash = %s, want %s: every container would be restarted by a binary swap", got, want)
	}
}

// Only the name and the image of a container change its hash.
func TestHashCoversOnlyNameAndImage(t *testing.T) {
	parity.ProvesPart(t, 2, "LIFE-46")
	plain := v1.Container{Name: "main", Image: "app:1"}
	for i := range reflect.TypeFor[v1.Container]().NumField() {
		c := plain
		field := reflect.TypeFor[v1.Container]().Field(i)
		fill(reflect.ValueOf(&c).Elem().Field(i))
		if same := Hash(&c) == Hash(&plain); same == (field.Name == "Name" || field.Name == "Image") {
			t.Errorf("another %s: the same hash: %v", field.Name, same)
		}
	}
}

// fill sets a field to a value other than its zero value.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("another")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
	}
}
