package client

import (
	"encoding/json"
	"hash/maphash"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"
)

// Limits of event aggregation, which are the same in other components.
const (
	eventsRemembered = 4096             // size of each cache
	similarEvents    = 10               // number of events with different messages at which they are combined
	similarWithin    = 10 * time.Minute // since the previous one
	objectBurst      = 25               // burst of events about one object
	objectRefill     = 5 * time.Minute  // period after which one more is allowed
	combinedPrefix   = "(combined from similar events): "
)

// aggregator aggregates events. Equal events are counted, many events that differ in their messages only are combined,
// and floods of events about one object are dropped. It belongs to one goroutine. Its caches are keyed by hashes of the
// texts, which can be long.
type aggregator struct {
	seed    maphash.Seed
	similar *lru.Cache // groups of similar events: *similarGroup
	known   *lru.Cache // events: storedEvent
	objects *lru.Cache // objects: *allowance
}

// similarGroup is a group of events that differ in their messages only.
type similarGroup struct {
	words []uint64 // hashes of the latest messages
	last  time.Time
}

// storedEvent identifies an event at the API server, with its count.
type storedEvent struct {
	name  string
	count int32
	first metav1.Time
}

// allowance is the token bucket of an object, in units of time.
type allowance struct {
	left time.Duration
	at   time.Time
}

func newAggregator() *aggregator {
	return &aggregator{
		seed:    maphash.MakeSeed(),
		similar: lru.New(eventsRemembered),
		known:   lru.New(eventsRemembered),
		objects: lru.New(eventsRemembered),
	}
}

// aggregatedEvent is an event to be written.
type aggregatedEvent struct {
	*corev1.Event
	again bool // it is stored already, and only its count changes
	key   uint64
}

// aggregate returns what to write for a new event; false: nothing.
func (g *aggregator) aggregate(e *corev1.Event, now time.Time) (aggregatedEvent, bool) {
	e, key := g.combine(e, now)
	out := g.count(e, key)
	return out, g.allow(e, now)
}

// combine replaces an event by a combined one if there are many similar events.
func (g *aggregator) combine(e *corev1.Event, now time.Time) (*corev1.Event, uint64) {
	o := &e.InvolvedObject
	group := g.sum(o.Kind, o.Namespace, o.Name, string(o.UID), o.APIVersion, e.Type, e.Reason)
	words := g.sum(e.Message)
	a, ok := cached[*similarGroup](g.similar, group)
	if !ok || now.Sub(a.last) > similarWithin {
		a = &similarGroup{}
		g.similar.Add(group, a)
	}
	a.last = now
	if !slices.Contains(a.words, words) {
		a.words = append(a.words, words)
	}
	if len(a.words) < similarEvents {
		return e, g.sum(o.Kind, o.Namespace, o.Name, o.FieldPath, string(o.UID), o.APIVersion, e.Type, e.Reason,
			e.Message)
	}
	a.words = slices.Delete(a.words, 0, 1)
	at := metav1.NewTime(now)
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: eventName(o.Name, now), Namespace: e.Namespace},
		InvolvedObject: *o,
		Type:           e.Type,
		Reason:         e.Reason,
		Message:        combinedPrefix + e.Message,
		Source:         e.Source,
		Count:          1,
		FirstTimestamp: at,
		LastTimestamp:  at,
	}, group
}

// count increments the count of an event that is stored already.
func (g *aggregator) count(e *corev1.Event, key uint64) aggregatedEvent {
	last, again := cached[storedEvent](g.known, key)
	if again {
		counted := *e
		counted.Name, counted.FirstTimestamp, counted.Count = last.name, last.first, last.count+1
		e = &counted
	}
	g.known.Add(key, storedEvent{e.Name, e.Count, e.FirstTimestamp})
	return aggregatedEvent{e, again, key}
}

// stored updates the cache from the server's response.
func (g *aggregator) stored(key uint64, e *corev1.Event) {
	g.known.Add(key, storedEvent{e.Name, e.Count, e.FirstTimestamp})
}

// allow reports whether the object's token bucket has a token for an event of this type.
func (g *aggregator) allow(e *corev1.Event, now time.Time) bool {
	o := &e.InvolvedObject
	key := g.sum(o.Kind, o.Namespace, o.Name, string(o.UID), o.APIVersion, e.Type)
	a, ok := cached[*allowance](g.objects, key)
	if !ok {
		a = &allowance{left: objectBurst * objectRefill, at: now}
		g.objects.Add(key, a)
	}
	a.left = min(objectBurst*objectRefill, a.left+max(now.Sub(a.at), 0)) // the clock may be set back
	a.at = now
	if a.left < objectRefill {
		return false
	}
	a.left -= objectRefill
	return true
}

// patch returns the patch of the stored event.
func (e aggregatedEvent) patch() ([]byte, error) {
	return json.Marshal(struct {
		Count         int32       `json:"count"`
		LastTimestamp metav1.Time `json:"lastTimestamp"`
		Message       string      `json:"message,omitempty"`
	}{e.Count, e.LastTimestamp, e.Message})
}

// sum returns a hash of texts.
func (g *aggregator) sum(texts ...string) uint64 {
	var h maphash.Hash
	h.SetSeed(g.seed)
	for _, t := range texts {
		h.WriteString(t)
		h.WriteByte(0)
	}
	return h.Sum64()
}

func cached[T any](c *lru.Cache, key uint64) (T, bool) {
	v, ok := c.Get(key)
	if !ok {
		var none T
		return none, false
	}
	return v.(T), true
}
