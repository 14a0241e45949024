package podsync

import (
	"sync"

	"keelson/internal/pods/explain"
	"keelson/internal/pods/podplan"
)

// mailbox holds messages of other goroutines to a worker. To put something into it never blocks, and its size is
// bounded: wake-ups and other signals are one bit each, requests to terminate the pod are merged from the third on, and
// there are as many results as tasks, and as many questions as goroutines that wait for an answer.
type mailbox struct {
	ready chan struct{} // capacity 1: there is something to take

	mu   sync.Mutex
	mail mail
}

// mail is what was put into a mailbox since it was last emptied.
type mail struct {
	wake     bool // the pod must be synced
	adopt    bool // only traces on the node show the pod
	force    bool // its object was removed while the pod was being deleted
	discard  bool // what is left of it in the runtime is to be removed
	requests []request
	finished []finished // in the order in which they ended
	ask      []chan<- explain.Pod
}

// request is a request to terminate the pod.
type request struct {
	podplan.EvictionRecord
	record bool // it is recorded on the disk before it comes into force
}

func newMailbox() *mailbox { return &mailbox{ready: make(chan struct{}, 1)} }

// put lets f add to the mail. f must not block.
func (b *mailbox) put(f func(*mail)) {
	b.mu.Lock()
	f(&b.mail)
	b.mu.Unlock()
	select {
	case b.ready <- struct{}{}:
	default: // one signal is enough
	}
}

func (b *mailbox) wake()    { b.put(func(m *mail) { m.wake = true }) }
func (b *mailbox) adopt()   { b.put(func(m *mail) { m.wake, m.adopt = true, true }) }
func (b *mailbox) force()   { b.put(func(m *mail) { m.force = true }) }
func (b *mailbox) discard() { b.put(func(m *mail) { m.wake, m.discard = true, true }) }

func (b *mailbox) finished(f finished) {
	b.put(func(m *mail) { m.finished = append(m.finished, f) })
}

func (b *mailbox) ask(answer chan<- explain.Pod) {
	b.put(func(m *mail) { m.ask = append(m.ask, answer) })
}

func (b *mailbox) request(r request) {
	b.put(func(m *mail) {
		m.wake = true
		if len(m.requests) < 2 {
			m.requests = append(m.requests, r)
			return
		}
		merge(&m.requests[1].EvictionRecord, r.EvictionRecord)
	})
}

// merge adds a later request to terminate the pod to an earlier one: of their deadlines only the earliest counts.
func merge(into *podplan.EvictionRecord, r podplan.EvictionRecord) {
	into.AtOnce = into.AtOnce || r.AtOnce
	if r.Deadline.Before(into.Deadline) {
		into.Deadline = r.Deadline
	}
}

// take empties the mailbox.
func (b *mailbox) take() mail {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.mail
	b.mail = mail{}
	return m
}

// empty reports whether there is nothing to take.
func (b *mailbox) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.mail.needsTurn() && len(b.mail.ask) == 0
}

// needsTurn reports whether there is more to do than to answer questions.
func (m *mail) needsTurn() bool {
	return m.wake || m.force || len(m.requests)+len(m.finished) > 0
}
