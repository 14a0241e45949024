package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"keelson/test/kit/parity"
)

// fakeServer stores events like an API server. It replaces the transport of the client, so that it works in virtual
// time. While down is set it cannot be reached.
type fakeServer struct {
	t      *testing.T
	down   atomic.Bool
	refuse bool
	full   string // namespace whose event quota is exhausted
	calls  []string
	stored []corev1.Event
	seen   func() // called with each request; nil: not counted
}

func (f *fakeServer) RoundTrip(r *http.Request) (*http.Response, error) {
	f.calls = append(f.calls, r.Method)
	if f.seen != nil {
		f.seen()
	}
	if f.down.Load() {
		return nil, errors.New("connection refused")
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	var e corev1.Event
	code := 200
	switch {
	case f.full != "" && strings.Contains(r.URL.Path, "/namespaces/"+f.full+"/"):
		return reply(429, metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status:   "Failure",
			Code:     429,
			Reason:   "TooManyRequests",
		})
	case f.refuse:
		return reply(403, metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status:   "Failure",
			Code:     403,
			Reason:   "Forbidden",
		})
	case r.Method == http.MethodPatch:
		if err := json.Unmarshal(body, &e); err != nil {
			return nil, err
		}
		f.stored[len(f.stored)-1].Count = e.Count
		e = f.stored[len(f.stored)-1]
	default:
		if err := json.Unmarshal(body, &e); err != nil {
			return nil, err
		}
		f.stored = append(f.stored, e)
		code = 201
	}
	e.Kind, e.APIVersion = "Event", "v1"
	return reply(code, e)
}

func reply(code int, obj any) (*http.Response, error) {
	b, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: code,
		Header:     http.Header{"Content-Type": {"application/json"}},
		Body:       io.NopCloser(bytes.NewReader(b)),
	}, nil
}

func (f *fakeServer) events(log io.Writer) *Events {
	c, err := NewFor(&rest.Config{
		Host:      "http://api",
		Transport: f,
	}, Config{Version: "v1", ContentType: "application/json"})
	if err != nil {
		f.t.Fatal(err)
	}
	return NewEvents(EventsConfig{Client: c, Node: "node1", Log: slog.New(slog.NewTextHandler(log, nil))})
}

var burstable = &corev1.Pod{
	ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", ResourceVersion: "5"},
	Spec:       corev1.PodSpec{InitContainers: []corev1.Container{{Name: "init"}}},
}

// inVirtualTime runs the recorder until all recorded events are processed.
func inVirtualTime(t *testing.T, e *Events, do func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- e.Run(ctx) }()
	do()
	pass(5 * time.Minute)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestEventFormat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeServer{t: t}
		e := f.events(t.Output())
		e.Pod(burstable, "init", corev1.EventTypeNormal, "Started", "Container started") // before Run: waits
		inVirtualTime(t, e,
			func() { e.Node(corev1.EventTypeNormal, "NodeReady", "Node node1 status is now: NodeReady") })
		if len(f.stored) != 2 {
			t.Fatalf("stored %d events, want 2", len(f.stored))
		}
		got := f.stored[0]
		if o := got.InvolvedObject; o.Kind != "Pod" || o.APIVersion != "v1" || o.UID != "u" || o.Name != "p" ||
			o.Namespace != "ns" ||
			o.ResourceVersion != "5" || o.FieldPath != "spec.initContainers{init}" {
			t.Errorf("object = %+v", o)
		}
		if got.Source.Component != "kubelet" || got.Source.Host != "node1" || got.ReportingController != "kubelet" ||
			got.ReportingInstance != "node1" {
			t.Errorf("source = %+v, %s, %s", got.Source, got.ReportingController, got.ReportingInstance)
		}
		if got.Namespace != "ns" || !strings.HasPrefix(got.Name, "p.") || got.Count != 1 || got.Type != "Normal" ||
			got.Reason != "Started" || got.Message != "Container started" {
			t.Errorf("event = %+v", got)
		}
		if n := f.stored[1]; n.Namespace != "default" || n.InvolvedObject.Kind != "Node" ||
			n.InvolvedObject.UID != "node1" ||
			n.InvolvedObject.Namespace != "" {
			t.Errorf("node event = %+v", n)
		}
	})
}

func TestEventFieldPath(t *testing.T) {
	parity.Proves(t, "SRV-58")
	always := corev1.ContainerRestartPolicyAlways
	p := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "init"}, {Name: "sidecar", RestartPolicy: &always}},
		Containers:     []corev1.Container{{Name: "main"}, {Name: "second"}},
		EphemeralContainers: []corev1.EphemeralContainer{{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"},
		}},
	}}
	for name, want := range map[string]string{
		"init":    "spec.initContainers{init}",
		"sidecar": "spec.initContainers{sidecar}",
		"main":    "spec.containers{main}",
		"second":  "spec.containers{second}",
		"debug":   "spec.ephemeralContainers{debug}",
		"":        "",
	} {
		if got := podReference(p, name).FieldPath; got != want {
			t.Errorf("container %q: %q, want %q", name, got, want)
		}
	}
}

// TestEventFlood: of the events of one source about one object a burst is sent, and then one event every five minutes.
func TestEventFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeServer{t: t}
		e := f.events(t.Output())
		inVirtualTime(t, e, func() {
			for i := range 100 {
				e.Pod(burstable, "", corev1.EventTypeWarning, fmt.Sprint("Reason", i), "message")
			}
			e.Node(corev1.EventTypeNormal, "NodeReady", "another object")
		})
		pods := 0
		for _, s := range f.stored {
			if s.InvolvedObject.Kind == "Pod" {
				pods++
			}
		}
		if pods != 25 || len(f.stored) != 26 {
			t.Errorf("%d events about the pod of %d, want 25 of 26", pods, len(f.stored))
		}
	})
}

// TestSimilarEventsAreCombined: from the tenth on, events that differ only in their messages are combined.
func TestSimilarEventsAreCombined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeServer{t: t}
		e := f.events(t.Output())
		inVirtualTime(t, e, func() {
			for i := range 15 {
				e.Pod(burstable, "", corev1.EventTypeWarning, "FailedMount", fmt.Sprint("volume ", i))
			}
		})
		last := f.stored[len(f.stored)-1]
		if len(f.stored) != 10 || last.Count != 6 ||
			!strings.HasPrefix(last.Message, "(combined from similar events): ") {
			t.Errorf("%d events, the last %q counted %d times", len(f.stored), last.Message, last.Count)
		}
	})
}

func TestEqualEventsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeServer{t: t}
		e := f.events(t.Output())
		inVirtualTime(t, e, func() {
			for range 3 {
				e.Pod(burstable, "", corev1.EventTypeWarning, "BackOff", "again")
			}
		})
		if len(f.stored) != 1 || f.stored[0].Count != 3 || fmt.Sprint(f.calls) != "[POST PATCH PATCH]" {
			t.Errorf("stored %d events, calls %v", len(f.stored), f.calls)
		}
	})
}

func TestEventRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeServer{t: t}
		f.down.Store(true)
		e := f.events(t.Output())
		inVirtualTime(t, e, func() {
			e.Pod(burstable, "", corev1.EventTypeNormal, "Killing", "Stopping container init")
			pass(time.Minute)
			f.down.Store(false)
		})
		if len(f.stored) != 1 {
			t.Errorf("stored %d events after the server came back, want 1", len(f.stored))
		}
	})
}

func TestRejectedEventDoesNotBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, log := &fakeServer{t: t, refuse: true}, new(strings.Builder)
		e := f.events(log)
		inVirtualTime(t, e, func() {
			e.Pod(burstable, "", corev1.EventTypeNormal, "Killing", "one")
			e.Pod(burstable, "", corev1.EventTypeNormal, "Pulled", "two")
		})
		if len(f.calls) != 2 {
			t.Errorf("calls %v, want one for each event", f.calls)
		}
		if n := strings.Count(log.String(), "failed to record event"); n != 1 {
			t.Errorf("reported %d times, want once:\n%s", n, log)
		}
	})
}

// TestQuotaDoesNotBlockEvents: a cluster may limit the events of each namespace
// (EventRateLimit), and a pod that crashes in one must not delay those of all others.
func TestQuotaDoesNotBlockEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeServer{t: t, full: "ns"}
		e := f.events(t.Output())
		other := burstable.DeepCopy()
		other.Namespace = "other"
		inVirtualTime(t, e, func() {
			for range 3 {
				e.Pod(burstable, "", corev1.EventTypeWarning, "BackOff", "again")
			}
			e.Pod(other, "", corev1.EventTypeNormal, "Killing", "Stopping container init")
			pass(0)
			if len(f.stored) != 1 || f.stored[0].Namespace != "other" {
				t.Errorf("stored at once: %v", f.stored)
			}
		})
	})
}

func TestRecordingNeverBlocks(t *testing.T) {
	e := (&fakeServer{t: t}).events(io.Discard)
	for range 2 * eventQueue {
		e.Node("Normal", "r", "m")
	}
	if len(e.queue) != eventQueue {
		t.Errorf("%d events wait, want %d", len(e.queue), eventQueue)
	}
}

func TestLogEvents(t *testing.T) {
	var out strings.Builder
	e := LogEvents{slog.New(slog.NewTextHandler(&out, nil))}
	e.Pod(burstable, "init", corev1.EventTypeWarning, "BackOff", "again")
	e.Node(corev1.EventTypeNormal, "Starting", "Starting kubelet.")
	for _, want := range []string{
		"level=WARN msg=event pod=ns/p podUID=u reason=BackOff message=again containerName=init",
		"level=INFO msg=event reason=Starting",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("log lacks %q:\n%s", want, &out)
		}
	}
}

// pass advances the virtual time, and waits until everything that is due has happened.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// TestRecorder checks the source of events, their rate, and the combination of similar ones. Events about unknown
// containers are dropped.
func TestRecorder(t *testing.T) {
	parity.Proves(t, "SRV-57")
	synctest.Test(t, func(t *testing.T) {
		f := &fakeServer{t: t}
		c, err := NewFor(&rest.Config{
			Host:      "http://api",
			Transport: f,
		}, Config{Version: "v1", ContentType: "application/json", EventQPS: 0.5, EventBurst: 3})
		if err != nil {
			t.Fatal(err)
		}
		e := NewEvents(EventsConfig{Client: c, Node: "node1", Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
		began := time.Now()
		var at []time.Duration
		f.seen = func() { at = append(at, time.Since(began)) }
		inVirtualTime(t, e, func() {
			for i := range 5 {
				e.Pod(burstable, "", corev1.EventTypeNormal, fmt.Sprint("Reason", i), "message")
			}
			e.Pod(burstable, "main", corev1.EventTypeNormal, "Started", "a container that the pod does not have")
			e.Pod(burstable, "init", corev1.EventTypeNormal, "Started", "Container started")
			for i := range 12 { // similar: the tenth and later ones are combined
				e.Pod(burstable, "", corev1.EventTypeWarning, "FailedMount", fmt.Sprint("volume ", i))
			}
		})
		if len(f.stored) != 16 || len(at) != 18 {
			t.Fatalf("%d events of %d requests, want 16 of 18", len(f.stored), len(at))
		}
		for i, s := range f.stored {
			if s.Source.Component != "kubelet" || s.Source.Host != "node1" ||
				s.InvolvedObject.FieldPath == "spec.containers{main}" || strings.Contains(s.Message, "does not have") {
				t.Errorf("event %d: %+v", i, s)
			}
		}
		if last := f.stored[15]; last.Count != 3 ||
			!strings.HasPrefix(last.Message, "(combined from similar events): ") {
			t.Errorf("the last: %d times %q", last.Count, last.Message)
		}
		for i, when := range at { // three at once, then one in two seconds
			want := time.Duration(max(i-2, 0)) * 2 * time.Second
			if when < want-time.Millisecond || when > want+time.Second {
				t.Errorf("request %d after %v, want %v", i, when, want)
			}
		}
	})
}

// TestEventTimesAfterClockChange: a machine may boot with a clock that is a year ahead and is corrected later. Events
// after the correction have the correct time, and none is dropped because of it.
func TestEventTimesAfterClockChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeServer{t: t}
		e := f.events(t.Output())
		var ahead time.Duration
		e.cfg.now = func() time.Time { return time.Now().Add(ahead) }
		ahead = 365 * 24 * time.Hour
		inVirtualTime(t, e, func() {
			for i := range objectBurst - 1 { // one of the burst is left
				e.Pod(burstable, "", corev1.EventTypeNormal, fmt.Sprint("Early", i), "message")
			}
			pass(time.Second)
			ahead = 0
			for i := range 2 {
				e.Pod(burstable, "", corev1.EventTypeNormal, fmt.Sprint("Late", i), "message")
			}
			pass(objectRefill)
			e.Pod(burstable, "", corev1.EventTypeNormal, "Later", "message")
		})
		var late []string
		for _, s := range f.stored[objectBurst-1:] {
			late = append(late, s.Reason)
			if at := s.LastTimestamp.Time; at.After(time.Now()) {
				t.Errorf("%s is of %v, now is %v", s.Reason, at, time.Now())
			}
		}
		if got := strings.Join(late, " "); got != "Late0 Later" {
			t.Errorf("stored after the clock was set back: %s", got)
		}
	})
}
