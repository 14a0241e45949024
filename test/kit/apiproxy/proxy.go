// Package apiproxy stands between a client and an API server, real or fake,
// and lets a test make the server slow, failing or unreachable, and count the
// requests.
//
// A Proxy is an http.Handler around another one: fakeapi.Server itself, or
// Reverse for a server elsewhere. All its state is behind one mutex.
package apiproxy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson/test/kit/faults"
)

// Request is what a request asks for, in the API's terms.
type Request struct {
	Verb        string // get list watch create update patch delete deletecollection
	Resource    string // plural, with subresource: pods, pods/status; a path such as /healthz otherwise
	Namespace   string
	Name        string
	Fields      string    // the field selector of a list or watch
	Start, End  time.Time // End is zero while it runs
	Code        int       // of the answer; 0 if there was none
	Interrupted bool      // the answer was broken off by a partition
}

// Key is a verb and a resource, by which requests are counted.
type Key struct{ Verb, Resource string }

func (k Key) String() string { return k.Verb + " " + k.Resource }

// Link is the state of the connection to the server.
type Link int

// The link's states.
const (
	Up   Link = iota
	Drop      // connections are closed, new ones too
	Hang      // nothing comes through and nothing ends, as with lost packets
)

// maxLog bounds the requests that are kept for Requests. Counts includes all.
const maxLog = 100_000

// Proxy forwards requests, unless a fault or the link's state prevents it.
type Proxy struct {
	next   http.Handler
	faults faults.Set[Request, Fault]

	mu      sync.Mutex
	link    Link
	changed chan struct{} // closed and replaced when link changes
	counts  map[Key]int
	log     []*Request
	open    map[*response]bool
}

// New puts a proxy before a server.
func New(next http.Handler) *Proxy {
	return &Proxy{next: next, changed: make(chan struct{}), counts: map[Key]int{}, open: map[*response]bool{}}
}

// Reverse forwards requests to a server elsewhere. The transport adds the credentials; http.DefaultTransport if nil.
func Reverse(target *url.URL, transport http.RoundTripper) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Host = target.Host },
		Transport:     transport,
		FlushInterval: -1, // watches must not be held back
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
			// The server cannot be reached: to the client it looks like that too.
			panic(http.ErrAbortHandler)
		},
	}
}

// ServeHTTP applies the link's state and the faults to a request, and forwards it.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	req := Describe(r)
	req.Start = time.Now()
	p.mu.Lock()
	p.counts[Key{req.Verb, req.Resource}]++
	if len(p.log) >= maxLog {
		p.log = slices.Delete(p.log, 0, maxLog/10)
	}
	p.log = append(p.log, &req)
	p.mu.Unlock()

	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	r = r.WithContext(ctx)
	out := &response{p: p, w: w, r: r, cancel: cancel, watch: req.Verb == "watch"}
	p.mu.Lock()
	p.open[out] = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.open, out)
		req.End, req.Code, req.Interrupted = time.Now(), out.code, out.broken
	}()

	out.pass() // a request does not get through a link that is down
	late, answered := p.meet(out, req)
	if answered {
		return
	}
	if len(late) == 0 {
		p.next.ServeHTTP(out, r)
		out.pass() // an answer that was broken off must not look complete
		return
	}
	// The server executes the request. The late faults decide what the client receives.
	held := &held{header: http.Header{}}
	p.next.ServeHTTP(held, r)
	for _, in := range late {
		if apply(in, out) {
			return
		}
	}
	held.release(out)
}

// Describe reads from a request what it asks for.
func Describe(r *http.Request) Request {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return Request{Verb: strings.ToLower(r.Method), Resource: r.URL.Path}
	}
	var req Request
	if len(parts) >= 3 && parts[0] == "namespaces" && parts[2] != "status" && parts[2] != "finalize" {
		req.Namespace, parts = parts[1], parts[2:]
	}
	req.Resource = parts[0]
	if len(parts) > 1 {
		req.Name = parts[1]
	}
	if len(parts) > 2 {
		req.Resource += "/" + strings.Join(parts[2:], "/")
	}
	req.Fields = r.URL.Query().Get("fieldSelector")
	watching := r.URL.Query().Get("watch")
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		switch {
		case watching == "true" || watching == "1":
			req.Verb = "watch"
		case req.Name == "":
			req.Verb = "list"
		default:
			req.Verb = "get"
		}
	case http.MethodPost:
		req.Verb = "create"
	case http.MethodPut:
		req.Verb = "update"
	case http.MethodPatch:
		req.Verb = "patch"
	case http.MethodDelete:
		req.Verb = "delete"
		if req.Name == "" {
			req.Verb = "deletecollection"
		}
	default:
		req.Verb = strings.ToLower(r.Method)
	}
	return req
}

// SetLink changes the link, for requests under way too: Drop breaks them off,
// Hang holds what their answers still bring until the link changes again.
func (p *Proxy) SetLink(l Link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.link = l
	close(p.changed)
	p.changed = make(chan struct{})
	if l == Drop {
		for o := range p.open {
			o.breakLocked()
		}
	}
}

// BreakWatches closes the connections of the watches that are open now.
func (p *Proxy) BreakWatches() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for o := range p.open {
		if o.watch {
			o.breakLocked()
		}
	}
}

// Counts returns how many requests there were since the start or Reset.
func (p *Proxy) Counts() map[Key]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts)
}

// Requests returns the requests since the start or Reset, oldest first.
func (p *Proxy) Requests() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]Request, len(p.log))
	for i, r := range p.log {
		out[i] = *r
	}
	return out
}

// Reset drops the requests so far.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts, p.log = map[Key]int{}, nil
}

// Summary lists the counts, most frequent first.
func (p *Proxy) Summary() string {
	counts := p.Counts()
	keys := slices.Collect(maps.Keys(counts))
	slices.SortFunc(keys, func(a, b Key) int {
		if d := counts[b] - counts[a]; d != 0 {
			return d
		}
		return strings.Compare(a.String(), b.String())
	})
	var b strings.Builder
	for _, k := range keys {
		fmt.Fprintf(&b, "%6d %s\n", counts[k], k)
	}
	return b.String()
}

// response passes an answer on as far as the link allows.
type response struct {
	p      *Proxy
	w      http.ResponseWriter
	r      *http.Request
	cancel context.CancelFunc
	watch  bool
	code   int
	broken bool // under Proxy.mu
}

// breakLocked breaks the answer off: the server sees that its client has gone, and the
// client sees a closed connection.
func (o *response) breakLocked() {
	o.broken = true
	o.cancel()
}

// pass returns when the link is up. It breaks the request off when the link is
// dropped, and when the client has gone.
func (o *response) pass() {
	for {
		o.p.mu.Lock()
		link, changed, broken := o.p.link, o.p.changed, o.broken
		if link == Drop {
			o.broken = true
		}
		o.p.mu.Unlock()
		switch {
		case broken || link == Drop:
			panic(http.ErrAbortHandler)
		case link == Up:
			return
		}
		select {
		case <-changed:
		case <-o.r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
}

func (o *response) Header() http.Header { return o.w.Header() }

func (o *response) WriteHeader(code int) {
	o.pass()
	o.code = code
	o.w.WriteHeader(code)
}

func (o *response) Write(b []byte) (int, error) {
	o.pass()
	if o.code == 0 {
		o.code = http.StatusOK
	}
	return o.w.Write(b)
}

// Flush implements http.Flusher.
func (o *response) Flush() {
	if f, ok := o.w.(http.Flusher); ok {
		f.Flush()
	}
}

// held is the server's answer, which is kept until the late faults have been applied.
type held struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (h *held) Header() http.Header         { return h.header }
func (h *held) WriteHeader(code int)        { h.code = code }
func (h *held) Write(b []byte) (int, error) { return h.body.Write(b) }

func (h *held) release(w http.ResponseWriter) {
	maps.Copy(w.Header(), h.header)
	if h.code != 0 {
		w.WriteHeader(h.code)
	}
	w.Write(h.body.Bytes()) // fails only if the client has gone
}

// refuse answers with an API error.
func refuse(w http.ResponseWriter, f Fault) {
	st := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(f.Code), Message: f.Message,
	}
	switch f.Code {
	case http.StatusConflict:
		st.Reason = metav1.StatusReasonConflict
	case http.StatusTooManyRequests:
		st.Reason = metav1.StatusReasonTooManyRequests
	case http.StatusInternalServerError:
		st.Reason = metav1.StatusReasonInternalError
	case http.StatusServiceUnavailable:
		st.Reason = metav1.StatusReasonServiceUnavailable
	case http.StatusForbidden:
		st.Reason = metav1.StatusReasonForbidden
	case http.StatusUnauthorized:
		st.Reason = metav1.StatusReasonUnauthorized
	case http.StatusNotFound:
		st.Reason = metav1.StatusReasonNotFound
	case http.StatusGone:
		st.Reason = metav1.StatusReasonExpired
	}
	if st.Message == "" {
		st.Message = fmt.Sprintf("injected answer %d", f.Code)
	}
	w.Header().Set("Content-Type", "application/json")
	if f.RetryAfter > 0 {
		seconds := int(f.RetryAfter.Round(time.Second) / time.Second)
		st.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(seconds)}
		w.Header().Set("Retry-After", fmt.Sprint(seconds))
	}
	w.WriteHeader(f.Code)
	if err := json.NewEncoder(w).Encode(st); err != nil {
		panic(http.ErrAbortHandler)
	}
}
