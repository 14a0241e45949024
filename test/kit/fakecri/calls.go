package fakecri

import (
	"context"
	"path"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Call is one CRI call as the runtime saw it.
type Call struct {
	Seq       int    // 1, 2, 3, … in order of arrival
	Method    string // RunPodSandbox
	Pod       string // namespace/name, where the call is about a pod
	UID       string // of that pod
	Container string // its name, where the call is about a container
	Attempt   uint32 // of the container or sandbox
	Image     string
	Command   []string // of ExecSync and Exec
	Timeout   int64    // of StopContainer and ExecSync, in seconds

	Start, End time.Time // End is zero while the call runs
	Code       codes.Code
	Err        string
	// Done reports that the call has taken effect, also if its caller got an error or no answer.
	Done bool
}

// Key names the object of the call: web/nginx, or an image.
func (c Call) Key() string {
	switch {
	case c.Container != "":
		return c.Pod + "/" + c.Container
	case c.Pod != "":
		return c.Pod
	}
	return c.Image
}

// MethodUsage sums up the calls of one method.
type MethodUsage struct {
	Calls, Errors     int
	InFlight, MaxOpen int // now, and the most there ever were at once
	Total, Max        time.Duration
}

// callLog keeps the last calls and sums of all of them.
type callLog struct {
	limit int

	mu      sync.Mutex
	seq     int
	list    []*Call // by Seq, a gap-free run
	methods map[string]*MethodUsage
	watch   []*callWatch
}

type callWatch struct {
	match func(Call) bool
	hit   chan Call
}

func (l *callLog) begin(c Call) *Call {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	c.Seq, c.Start = l.seq, time.Now()
	if len(l.list) >= l.limit {
		l.list = slices.Delete(l.list, 0, max(1, l.limit/10))
	}
	l.list = append(l.list, &c)
	m := l.methods[c.Method]
	if m == nil {
		m = &MethodUsage{}
		l.methods[c.Method] = m
	}
	m.Calls++
	m.InFlight++
	m.MaxOpen = max(m.MaxOpen, m.InFlight)
	return &c
}

// end records that a call has ended, and returns its complete record.
func (l *callLog) end(c *Call, err error) Call {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.End = time.Now()
	m := l.methods[c.Method]
	m.InFlight--
	if err != nil {
		c.Code, c.Err = status.Code(err), status.Convert(err).Message()
		m.Errors++
	}
	took := c.End.Sub(c.Start)
	m.Total += took
	m.Max = max(m.Max, took)
	l.watch = slices.DeleteFunc(l.watch, func(w *callWatch) bool {
		if !w.match(*c) {
			return false
		}
		w.hit <- *c // capacity 1, sent once
		return true
	})
	return *c
}

// did records whether a call has taken effect.
func (l *callLog) did(c *Call, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.Done = err == nil
}

// Calls returns the calls after the one with this sequence number, oldest
// first. Only the last Options.MaxCalls are kept.
func (r *Runtime) Calls(after int) []Call {
	r.calls.mu.Lock()
	defer r.calls.mu.Unlock()
	var out []Call
	for _, c := range r.calls.list {
		if c.Seq > after {
			out = append(out, *c)
		}
	}
	return out
}

// LastCall returns the sequence number of the latest call.
func (r *Runtime) LastCall() int {
	r.calls.mu.Lock()
	defer r.calls.mu.Unlock()
	return r.calls.seq
}

// Ended delivers the next call that ends and matches. Register it before
// causing the call.
func (r *Runtime) Ended(match func(Call) bool) <-chan Call {
	w := &callWatch{match: match, hit: make(chan Call, 1)}
	r.calls.mu.Lock()
	defer r.calls.mu.Unlock()
	r.calls.watch = append(r.calls.watch, w)
	return w.hit
}

// Usage returns the sums of all calls by method.
func (r *Runtime) Usage() map[string]MethodUsage {
	r.calls.mu.Lock()
	defer r.calls.mu.Unlock()
	out := map[string]MethodUsage{}
	for name, m := range r.calls.methods {
		out[name] = *m
	}
	return out
}

// TimeInside is how much of the time from begin to end at least one of the
// calls was under way. What is left of the span is the kubelet's own share.
func TimeInside(calls []Call, begin, end time.Time) time.Duration {
	type span struct{ from, to time.Time }
	var spans []span
	for _, c := range calls {
		from, to := c.Start, c.End
		if to.IsZero() || to.After(end) {
			to = end
		}
		if from.Before(begin) {
			from = begin
		}
		if to.After(from) {
			spans = append(spans, span{from, to})
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
	var total time.Duration
	covered := begin
	for _, s := range spans {
		if s.from.Before(covered) {
			s.from = covered
		}
		if s.to.After(s.from) {
			total += s.to.Sub(s.from)
			covered = s.to
		}
	}
	return total
}

// describe is Describe with the runtime's own sandboxes and containers.
func (r *Runtime) describe(method string, req any) Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	sandbox := func(id string) *cri.PodSandboxConfig {
		if s, found := r.sandboxLocked(id); found {
			return s.config
		}
		return nil
	}
	container := func(id string) (*cri.ContainerConfig, string) {
		if c, found := r.containerLocked(id); found {
			return c.config, c.sandboxID
		}
		return nil, ""
	}
	return Describe(method, req, sandbox, container)
}

// Describe returns the pod, container or image that a request is about. The functions return the configuration of the
// sandbox or container with an id, the latter with the id of its sandbox; nil if there is none.
func Describe(method string, req any, sandbox func(id string) *cri.PodSandboxConfig,
	container func(id string) (config *cri.ContainerConfig, sandbox string)) Call {
	c := Call{Method: method}
	switch q := req.(type) {
	case *cri.RunPodSandboxRequest:
		c.pod(q.GetConfig().GetMetadata())
		return c
	case *cri.PullImageRequest:
		c.Image = q.GetImage().GetImage()
		c.pod(q.GetSandboxConfig().GetMetadata())
		return c
	case *cri.StopContainerRequest:
		c.Timeout = q.GetTimeout()
	case *cri.ExecSyncRequest:
		c.Timeout, c.Command = q.GetTimeout(), q.GetCmd()
	case *cri.ExecRequest:
		c.Command = q.GetCmd()
	}
	if q, ok := req.(interface{ GetImage() *cri.ImageSpec }); ok {
		c.Image = q.GetImage().GetImage()
	}
	if q, ok := req.(interface{ GetPodSandboxId() string }); ok {
		c.pod(sandbox(q.GetPodSandboxId()).GetMetadata())
	}
	if q, ok := req.(*cri.CreateContainerRequest); ok {
		c.container(q.GetConfig())
	}
	if q, ok := req.(interface{ GetContainerId() string }); ok {
		if config, in := container(q.GetContainerId()); config != nil {
			c.pod(sandbox(in).GetMetadata())
			c.container(config)
		}
	}
	return c
}

func (c *Call) pod(m *cri.PodSandboxMetadata) {
	if m != nil {
		c.Pod, c.UID, c.Attempt = m.GetNamespace()+"/"+m.GetName(), m.GetUid(), m.GetAttempt()
	}
}

func (c *Call) container(cfg *cri.ContainerConfig) {
	c.Container, c.Attempt, c.Image = cfg.GetMetadata().GetName(), cfg.GetMetadata().GetAttempt(),
		cfg.GetImage().GetImage()
}

func (r *Runtime) interceptUnary(
	ctx context.Context, req any, i *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (res any, err error) {
	call := r.calls.begin(r.describe(path.Base(i.FullMethod), req))
	defer func() {
		ended := r.calls.end(call, err)
		if r.opts.OnCall != nil {
			r.opts.OnCall(ended, req, res)
		}
	}()
	late, err := r.before(ctx, *call)
	if err != nil {
		return nil, err
	}
	if in := late.dies(); in != nil {
		defer in.Fault.death.happens()
		return nil, r.die(func() {
			if in.Fault.After {
				_, err := handle(ctx, req)
				r.calls.did(call, err)
			}
		})
	}
	if late.late(ctx) {
		_, err := handle(context.WithoutCancel(ctx), req)
		r.calls.did(call, err)
		return nil, errContext("answer "+call.Method, ctx.Err())
	}
	if late.idle() {
		if res, err = unfounded(call.Method); err != nil {
			return nil, err
		}
	} else {
		res, err = handle(ctx, req)
		if r.calls.did(call, err); err != nil {
			return nil, err
		}
	}
	if err := late.after(ctx); err != nil {
		return nil, err
	}
	for _, name := range r.lies(*call) {
		lie(name, res)
	}
	return res, nil
}

func (r *Runtime) interceptStream(
	srv any, s grpc.ServerStream, i *grpc.StreamServerInfo, handle grpc.StreamHandler,
) (err error) {
	call := r.calls.begin(Call{Method: path.Base(i.FullMethod)})
	defer func() { r.calls.end(call, err) }()
	if _, err := r.before(s.Context(), *call); err != nil {
		return err
	}
	return handle(srv, lying{s, r, *call})
}

// lying is a stream whose messages are changed by the lies of the faults that the call has met.
type lying struct {
	grpc.ServerStream
	r    *Runtime
	call Call
}

func (l lying) SendMsg(m any) error {
	for _, name := range l.r.lies(l.call) {
		if p, ok := m.(proto.Message); ok {
			m = proto.Clone(p) // others may be sent the same
		}
		lie(name, m)
	}
	return l.ServerStream.SendMsg(m)
}
