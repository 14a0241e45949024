package fakecri

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Lies are ways in which an answer makes no sense, by name. Each changes the
// message and whatever is in it.
var Lies = map[string]func(proto.Message){
	// Nothing is in the answer.
	"blank": func(m proto.Message) { proto.Reset(m) },
	// Lists have no entries.
	"nothing": eachField(func(m protoreflect.Message, f protoreflect.FieldDescriptor) {
		if f.IsList() {
			m.Clear(f)
		}
	}),
	// Everything in a list is in it twice.
	"twice": eachField(func(m protoreflect.Message, f protoreflect.FieldDescriptor) {
		if f.IsList() && m.Has(f) {
			l := m.Mutable(f).List()
			for i := range l.Len() {
				l.Append(l.Get(i))
			}
		}
	}),
	// What has an id has none.
	"no-ids": eachID(func(string) string { return "" }),
	// What has an id has another one, that does not exist.
	"other-ids": eachID(func(id string) string { return strings.Repeat("f", len(id)) }),
	// Containers are reported to be in a sandbox that does not exist.
	"other-sandbox": eachField(func(m protoreflect.Message, f protoreflect.FieldDescriptor) {
		if f.Name() == "pod_sandbox_id" {
			m.Set(f, protoreflect.ValueOfString(strings.Repeat("e", 64)))
		}
	}),
	// States are none that the interface has.
	"other-state": eachField(func(m protoreflect.Message, f protoreflect.FieldDescriptor) {
		if f.Name() == "state" && f.Kind() == protoreflect.EnumKind {
			m.Set(f, protoreflect.ValueOfEnum(99))
		}
	}),
	// What has run is reported never to have run.
	"first-state": eachField(func(m protoreflect.Message, f protoreflect.FieldDescriptor) {
		if f.Name() == "state" && f.Kind() == protoreflect.EnumKind {
			m.Clear(f)
		}
	}),
	// Labels, annotations and further information are lost.
	"no-labels": eachField(func(m protoreflect.Message, f protoreflect.FieldDescriptor) {
		if f.IsMap() {
			m.Clear(f)
		}
	}),
	// Labels, annotations and further information are unparsable.
	"garbage": eachField(func(m protoreflect.Message, f protoreflect.FieldDescriptor) {
		if f.IsMap() && f.MapValue().Kind() == protoreflect.StringKind {
			m.Get(f).Map().Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
				m.Mutable(f).Map().Set(k, protoreflect.ValueOfString("}{ \u0000 \ufffd"))
				return true
			})
		}
	}),
}

// eachID makes a lie of what becomes of each id.
func eachID(change func(string) string) func(proto.Message) {
	return eachField(func(m protoreflect.Message, f protoreflect.FieldDescriptor) {
		name := string(f.Name())
		if f.Kind() == protoreflect.StringKind && !f.IsList() && !f.IsMap() &&
			(name == "id" || name == "image_ref" || strings.HasSuffix(name, "_id")) {
			m.Set(f, protoreflect.ValueOfString(change(m.Get(f).String())))
		}
	})
}

// eachField makes a lie of what becomes of each field, of a message and of those
// in it.
func eachField(change func(protoreflect.Message, protoreflect.FieldDescriptor)) func(proto.Message) {
	var walk func(protoreflect.Message)
	walk = func(m protoreflect.Message) {
		m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			switch {
			case f.Message() == nil || f.IsMap():
			case f.IsList():
				for i := range v.List().Len() {
					walk(v.List().Get(i).Message())
				}
			default:
				walk(v.Message())
			}
			return true
		})
		for i := range m.Descriptor().Fields().Len() {
			change(m, m.Descriptor().Fields().Get(i))
		}
	}
	return func(m proto.Message) { walk(m.ProtoReflect()) }
}

// lie makes nonsense of an answer.
func lie(name string, answer any) {
	if m, ok := answer.(proto.Message); ok {
		Lies[name](m)
	}
}

// unfounded is the answer of a call that did nothing.
func unfounded(method string) (proto.Message, error) {
	name := protoreflect.FullName("runtime.v1." + method + "Response")
	kind, err := protoregistry.GlobalTypes.FindMessageByName(name)
	if err != nil {
		return nil, fmt.Errorf("answer %s without doing it: %w", method, err)
	}
	return kind.New().Interface(), nil
}
