package apiclient

import (
	"encoding/json"
	"hash/maphash"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"
)

// What becomes of events that are like others. Readers of events know these bounds
// from other components.
const (
	eventsRemembered = 4096             // of each kind of memory; the oldest are forgotten
	alikeEvents      = 10               // so many that differ in their words alone become one
	alikeWithin      = 10 * time.Minute // of the one before
	objectBurst      = 25               // events about one object,
	objectRefill     = 5 * time.Minute  // and one more each time this has passed
	combinedPrefix   = "(combined from similar events): "
)

// gatherer decides what is written of an event: equal ones are counted on the first
// of them, many that differ in their words alone become one, and of a flood about one
// object most are dropped. It belongs to one goroutine. It remembers what it goes by
// under sums of the texts, which are long and many.
type gatherer struct {
	seed    maphash.Seed
	alike   *lru.Cache // of groups of alike events: *alike
	told    *lru.Cache // of events: told
	objects *lru.Cache // of objects: *allowance
}

// alike are events that differ in their words alone.
type alike struct {
	words []uint64 // sums of the latest of them, which differ
	last  time.Time
}

// told is an event as it was last written.
type told struct {
	name  string
	count int32
	first metav1.Time
}

// allowance is what may still be told of an object, as the time that it takes to
// earn that.
type allowance struct {
	left time.Duration
	at   time.Time
}

func newGatherer() *gatherer {
	return &gatherer{seed: maphash.MakeSeed(), alike: lru.New(eventsRemembered), told: lru.New(eventsRemembered), objects: lru.New(eventsRemembered)}
}

// gathered is an event as it is to be written.
type gathered struct {
	*corev1.Event
	again bool // it is stored, and only counted
	key   uint64
}

// gather tells what is to be written of a new event; false: nothing.
func (g *gatherer) gather(e *corev1.Event, now time.Time) (gathered, bool) {
	e, key := g.combine(e, now)
	out := g.count(e, key)
	return out, g.allow(e, now)
}

// combine makes one event of many that differ in their words alone.
func (g *gatherer) combine(e *corev1.Event, now time.Time) (*corev1.Event, uint64) {
	o := &e.InvolvedObject
	group := g.sum(o.Kind, o.Namespace, o.Name, string(o.UID), o.APIVersion, e.Type, e.Reason)
	words := g.sum(e.Message)
	a, ok := cached[*alike](g.alike, group)
	if !ok || now.Sub(a.last) > alikeWithin {
		a = &alike{}
		g.alike.Add(group, a)
	}
	a.last = now
	if !slices.Contains(a.words, words) {
		a.words = append(a.words, words)
	}
	if len(a.words) < alikeEvents {
		return e, g.sum(o.Kind, o.Namespace, o.Name, o.FieldPath, string(o.UID), o.APIVersion, e.Type, e.Reason, e.Message)
	}
	a.words = slices.Delete(a.words, 0, 1)
	at := metav1.NewTime(now)
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: eventName(o.Name, now), Namespace: e.Namespace},
		InvolvedObject: *o, Type: e.Type, Reason: e.Reason, Message: combinedPrefix + e.Message, Source: e.Source,
		Count: 1, FirstTimestamp: at, LastTimestamp: at,
	}, group
}

// count makes an event that was told before the same one, told once more.
func (g *gatherer) count(e *corev1.Event, key uint64) gathered {
	last, again := cached[told](g.told, key)
	if again {
		counted := *e
		counted.Name, counted.FirstTimestamp, counted.Count = last.name, last.first, last.count+1
		e = &counted
	}
	g.told.Add(key, told{e.Name, e.Count, e.FirstTimestamp})
	return gathered{e, again, key}
}

// stored takes in how the server has an event now.
func (g *gatherer) stored(key uint64, e *corev1.Event) {
	g.told.Add(key, told{e.Name, e.Count, e.FirstTimestamp})
}

// allow reports whether there is room left for news of this type about the object.
func (g *gatherer) allow(e *corev1.Event, now time.Time) bool {
	o := &e.InvolvedObject
	key := g.sum(o.Kind, o.Namespace, o.Name, string(o.UID), o.APIVersion, e.Type)
	a, ok := cached[*allowance](g.objects, key)
	if !ok {
		a = &allowance{left: objectBurst * objectRefill, at: now}
		g.objects.Add(key, a)
	}
	a.left = min(objectBurst*objectRefill, a.left+max(now.Sub(a.at), 0)) // the clock may have been set back
	a.at = now
	if a.left < objectRefill {
		return false
	}
	a.left -= objectRefill
	return true
}

// patch is what turns the stored event into this one.
func (e gathered) patch() ([]byte, error) {
	return json.Marshal(struct {
		Count         int32       `json:"count"`
		LastTimestamp metav1.Time `json:"lastTimestamp"`
		Message       string      `json:"message,omitempty"`
	}{e.Count, e.LastTimestamp, e.Message})
}

// sum stands for texts.
func (g *gatherer) sum(texts ...string) uint64 {
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
