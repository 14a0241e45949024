package apiproxy

import (
	"net/http"
	"time"

	"keelson/test/kit/faults"
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
	// After applies the fault once the server has executed the request. The client does not learn that it was executed.
	After bool
}

// Injection is a fault in force.
type Injection = faults.Injection[Request, Fault]

// Inject puts a fault in force.
func (p *Proxy) Inject(f Fault) *Injection { return p.faults.Inject(f) }

// Matches reports whether the selectors match a request.
func (f Fault) Matches(r Request) bool {
	return (f.Verb == "" || f.Verb == r.Verb) && (f.Resource == "" || f.Resource == r.Resource) &&
		(f.Namespace == "" || f.Namespace == r.Namespace) && (f.Name == "" || f.Name == r.Name)
}

// Window returns Skip and Times.
func (f Fault) Window() (skip, times int) { return f.Skip, f.Times }

// meet applies the faults that come before the server and returns those that
// come after it, and whether one of the former has answered the request.
func (p *Proxy) meet(out *response, r Request) (late []*Injection, answered bool) {
	var now []*Injection
	for _, in := range p.faults.Meet(r) {
		if in.Fault.After {
			late = append(late, in)
		} else {
			now = append(now, in)
		}
	}
	for _, in := range now {
		if apply(in, out) {
			return nil, true
		}
	}
	return late, false
}

// apply applies the fault to a request. It reports whether the fault has answered the request.
func apply(in *Injection, out *response) bool {
	ctx := out.r.Context()
	if in.Delay(ctx, in.Fault.Delay) != nil || in.Fault.Hang && in.Hang(ctx) != nil {
		panic(http.ErrAbortHandler)
	}
	if in.Fault.Drop {
		panic(http.ErrAbortHandler)
	}
	if in.Fault.Code != 0 {
		refuse(out, in.Fault)
		return true
	}
	return false
}
