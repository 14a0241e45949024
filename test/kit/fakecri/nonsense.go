package fakecri

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Lies are ways in which an answer is wrong, by name. Each changes the message and
// the messages in it.
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
	// IDs are empty.
	"no-ids": eachID(func(string) string { return "" }),
	// IDs are replaced by IDs that do not exist.
	"other-ids": eachID(func(id string) string { return strings.Repeat("f", len(id)) }),
	// Containers are reported to be in a sandbox that does not exist.
	"other-sandbox": eachField(func(m protoreflect.Message, f protoreflect.FieldDescriptor) {
		if f.Name() == "pod_sandbox_id" {
			m.Set(f, protoreflect.ValueOfString(strings.Repeat("e", 64)))
		}
	}),
	// States have a value that the CRI does not define.
	"other-state": eachField(func(m protoreflect.Message, f protoreflect.FieldDescriptor) {
		if f.Name() == "state" && f.Kind() == protoreflect.EnumKind {
			m.Set(f, protoreflect.ValueOfEnum(99))
		}
	}),
	// States have their first value: a container is created, a sandbox is ready.
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

// eachID makes a lie from a change of each ID.
func eachID(change func(string) string) func(proto.Message) {
	return eachField(func(m protoreflect.Message, f protoreflect.FieldDescriptor) {
		name := string(f.Name())
		if f.Kind() == protoreflect.StringKind && !f.IsList() && !f.IsMap() &&
			(name == "id" || name == "image_ref" || strings.HasSuffix(name, "_id")) {
			m.Set(f, protoreflect.ValueOfString(change(m.Get(f).String())))
		}
	})
}

// eachField makes a lie from a change of each field of a message and of the messages
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

// lie applies a lie to an answer.
func lie(name string, answer any) {
	if m, ok := answer.(proto.Message); ok {
		Lies[name](m)
	}
}

// unfounded is the empty answer of a call that had no effect.
func unfounded(method string) (proto.Message, error) {
	name := protoreflect.FullName("runtime.v1." + method + "Response")
	kind, err := protoregistry.GlobalTypes.FindMessageByName(name)
	if err != nil {
		return nil, fmt.Errorf("answer %s without doing it: %w", method, err)
	}
	return kind.New().Interface(), nil
}
