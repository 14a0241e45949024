package eventlog

import (
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
)

// Event is one event.
type Event struct {
	Object    string // the name of the pod, "node", or what Add got
	Container string // the container of the pod that it is about, if it is about one
	Type      string
	Reason    string
	Message   string
}

// String is the event with what it is about.
func (e Event) String() string {
	about := e.Object
	if e.Container != "" {
		about += "/" + e.Container
	}
	return about + " " + e.Text()
}

// Text is the event without what it is about: "Warning Failed Error: no such file".
func (e Event) Text() string { return e.Type + " " + e.Reason + " " + e.Message }

// Log records events in their order. The zero Log is empty.
type Log struct {
	mu     sync.Mutex
	events []Event
}

// Pod records an event of a pod or of one of its containers.
func (l *Log) Pod(p *v1.Pod, container, eventType, reason, message string) {
	l.add(Event{Object: p.Name, Container: container, Type: eventType, Reason: reason, Message: message})
}

// Node records an event of the node.
func (l *Log) Node(eventType, reason, message string) { l.Add("node", eventType, reason, message) }

// Add records an event of any object.
func (l *Log) Add(object, eventType, reason, message string) {
	l.add(Event{Object: object, Type: eventType, Reason: reason, Message: message})
}

func (l *Log) add(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
}

// Events are all events.
func (l *Log) Events() []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

// Lines are all events with what they are about.
func (l *Log) Lines() []string { return format(l.Events(), Event.String) }

// Texts are all events without what they are about.
func (l *Log) Texts() []string { return format(l.Events(), Event.Text) }

// Take removes all events from the log and returns their Lines.
func (l *Log) Take() []string { return format(l.take(), Event.String) }

// TakeTexts removes all events from the log and returns their Texts.
func (l *Log) TakeTexts() []string { return format(l.take(), Event.Text) }

func (l *Log) take() []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	events := l.events
	l.events = nil
	return events
}

// Last is the last line, "" if there is none.
func (l *Log) Last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.events) == 0 {
		return ""
	}
	return l.events[len(l.events)-1].String()
}

// Has reports whether a line contains a text.
func (l *Log) Has(text string) bool {
	return slices.ContainsFunc(l.Lines(), func(line string) bool { return strings.Contains(line, text) })
}

// Count is the number of events with a reason.
func (l *Log) Count(reason string) (n int) {
	for _, e := range l.Events() {
		if e.Reason == reason {
			n++
		}
	}
	return n
}

func format(events []Event, how func(Event) string) (out []string) {
	for _, e := range events {
		out = append(out, how(e))
	}
	return out
}

// Discard records nothing.
type Discard struct{}

// Pod discards an event.
func (Discard) Pod(*v1.Pod, string, string, string, string) {}

// Node discards an event.
func (Discard) Node(string, string, string) {}

// Annotated discards an event with annotations.
func (Discard) Annotated(*v1.Pod, map[string]string, string, string, string) {}
