package apiproxy

import (
	"net/http"
	"slices"
	"time"
)

// Fault makes requests slow, failing or hanging. Empty selectors match
// everything.
type Fault struct {
	Verb      string // patch
	Resource  string // pods/status
	Namespace string
	Name      string

	Skip  int // let this many matching requests pass first
	Times int // then meet this many; 0 = until removed

	Delay      time.Duration
	Code       int // answer with this API error: 409, 429, 500, …
	RetryAfter time.Duration
	Message    string
	Drop       bool // close the connection
	Hang       bool // do not answer before Release
	// After lets the server do its part first: the client then does not learn
	// that it was done.
	After bool
}

// Injection is a fault in force.
type Injection struct {
	fault      Fault
	p          *Proxy
	release    chan struct{}
	seen, hits int // under Proxy.mu
	first      chan struct{}
}

// Inject puts a fault in force.
func (p *Proxy) Inject(f Fault) *Injection {
	in := &Injection{fault: f, p: p, release: make(chan struct{}), first: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, in)
	return in
}

// Release takes the fault out of force and lets hanging requests go on.
func (in *Injection) Release() {
	in.p.mu.Lock()
	defer in.p.mu.Unlock()
	in.p.faults = slices.DeleteFunc(in.p.faults, func(o *Injection) bool { return o == in })
	select {
	case <-in.release:
	default:
		close(in.release)
	}
}

// Hit is closed once a request has met the fault.
func (in *Injection) Hit() <-chan struct{} { return in.first }

// Hits counts the requests that met the fault.
func (in *Injection) Hits() int {
	in.p.mu.Lock()
	defer in.p.mu.Unlock()
	return in.hits
}

func (f Fault) matches(r Request) bool {
	return (f.Verb == "" || f.Verb == r.Verb) && (f.Resource == "" || f.Resource == r.Resource) &&
		(f.Namespace == "" || f.Namespace == r.Namespace) && (f.Name == "" || f.Name == r.Name)
}

// meet applies the faults that come before the server and returns those that
// come after it, and whether one of the former has answered the request.
func (p *Proxy) meet(out *response, r Request) (late []*Injection, answered bool) {
	p.mu.Lock()
	var now []*Injection
	for _, in := range p.faults {
		if !in.fault.matches(r) {
			continue
		}
		in.seen++
		if in.seen <= in.fault.Skip || in.fault.Times > 0 && in.hits >= in.fault.Times {
			continue
		}
		if in.hits++; in.hits == 1 {
			close(in.first)
		}
		if in.fault.After {
			late = append(late, in)
		} else {
			now = append(now, in)
		}
	}
	p.mu.Unlock()
	for _, in := range now {
		if in.apply(out) {
			return nil, true
		}
	}
	return late, false
}

// apply makes a request meet the fault; it reports whether that answered it.
func (in *Injection) apply(out *response) bool {
	ctx := out.r.Context()
	if in.fault.Delay > 0 {
		t := time.NewTimer(in.fault.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-in.release:
		case <-ctx.Done():
			panic(http.ErrAbortHandler)
		}
	}
	if in.fault.Hang {
		select {
		case <-in.release:
		case <-ctx.Done():
			panic(http.ErrAbortHandler)
		}
	}
	if in.fault.Drop {
		panic(http.ErrAbortHandler)
	}
	if in.fault.Code != 0 {
		refuse(out, in.fault)
		return true
	}
	return false
}
