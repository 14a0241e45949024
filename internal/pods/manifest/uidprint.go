package manifest

import (
	"bufio"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// printInternal writes a pod as k8s.io/utils/dump.ForHash would write upstream's internal
// version of it. The two versions differ in the package of their types, in the order of
// some fields, and in the place of the fields for host namespaces.
func printInternal(w io.Writer, p *v1.Pod) {
	b := bufio.NewWriter(w)
	(&printer{Writer: b, spec: &p.Spec}).value(reflect.ValueOf(p), true)
	b.Flush() // writes to a hash do not fail
}

// printer writes values, each with its type in front unless the type of the enclosing
// value implies it.
type printer struct {
	*bufio.Writer
	spec *v1.PodSpec
}

// value writes v, with its type if typed is set.
func (p *printer) value(v reflect.Value, typed bool) {
	if v.Kind() == reflect.Pointer {
		p.pointer(v, typed)
		return
	}
	if typed {
		p.typeOf(v.Type())
	}
	switch v.Kind() {
	case reflect.Bool:
		p.WriteString(strconv.FormatBool(v.Bool()))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		p.WriteString(strconv.FormatInt(v.Int(), 10))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		p.WriteString(strconv.FormatUint(v.Uint(), 10))
	case reflect.String:
		p.WriteString(v.String())
	case reflect.Slice:
		if v.IsNil() {
			p.WriteString("<nil>")
			return
		}
		p.list(v)
	case reflect.Array:
		p.list(v)
	case reflect.Map:
		p.mapping(v)
	case reflect.Struct:
		p.structure(v)
	default:
		panic("print pod: no value in a pod is a " + v.Type().String())
	}
}

func (p *printer) typeOf(t reflect.Type) {
	p.WriteString("(" + typeName(t) + ")")
}

func (p *printer) pointer(v reflect.Value, typed bool) {
	if typed {
		p.typeOf(v.Type())
	} else if !v.IsNil() {
		p.WriteString("<*>")
	}
	if v.IsNil() {
		p.WriteString("<nil>")
		return
	}
	p.value(v.Elem(), false)
}

func (p *printer) list(v reflect.Value) {
	p.WriteByte('[')
	for i := range v.Len() {
		p.space(i)
		p.value(v.Index(i), false)
	}
	p.WriteByte(']')
}

func (p *printer) mapping(v reflect.Value) {
	if v.IsNil() {
		p.WriteString("<nil>")
		return
	}
	p.WriteString("map[")
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	for i, k := range keys {
		p.space(i)
		p.value(k, false)
		p.WriteByte(':')
		p.value(v.MapIndex(k), false)
	}
	p.WriteByte(']')
}

func (p *printer) structure(v reflect.Value) {
	p.WriteByte('{')
	n := 0
	field := func(name string, f reflect.Value) {
		p.space(n)
		n++
		p.WriteString(name + ":")
		p.value(f, true)
	}
	named := func(v reflect.Value, names []string) {
		for _, name := range names {
			field(name, v.FieldByName(name))
		}
	}
	switch v.Type() {
	case reflect.TypeFor[v1.PodSpec]():
		named(v, internalPodSpec)
	case reflect.TypeFor[v1.PodSecurityContext]():
		named(reflect.ValueOf(p.spec).Elem(), internalOfSpec)
		named(v, internalPodSecurityContext)
	case reflect.TypeFor[v1.PodStatus]():
		named(v, internalPodStatus)
	case reflect.TypeFor[v1.VolumeSource]():
		named(v, internalVolumeSource)
	case reflect.TypeFor[v1.ServiceAccountTokenProjection]():
		named(v, []string{"Audience"})
		field("ExpirationSeconds", reflect.Indirect(v.FieldByName("ExpirationSeconds"))) // has a default
		named(v, []string{"Path"})
	default:
		for i := range v.NumField() {
			field(v.Type().Field(i).Name, v.Field(i))
		}
	}
	p.WriteByte('}')
}

func (p *printer) space(i int) {
	if i > 0 {
		p.WriteByte(' ')
	}
}

var apiPackage = reflect.TypeFor[v1.Pod]().PkgPath()

// typeName is a type's name where the API's types are those of package core.
func typeName(t reflect.Type) string {
	switch {
	case t.PkgPath() == apiPackage:
		return "core." + t.Name()
	case t.Name() != "":
		return t.String()
	}
	switch t.Kind() {
	case reflect.Pointer:
		return "*" + typeName(t.Elem())
	case reflect.Slice:
		return "[]" + typeName(t.Elem())
	case reflect.Map:
		return "map[" + typeName(t.Key()) + "]" + typeName(t.Elem())
	}
	return t.String()
}
