package apiclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
)

const (
	eventQueue    = 1000 // events that may wait; further ones are dropped
	eventTries    = 12
	eventRetry    = 10 * time.Second
	eventDropNote = time.Minute // how often lost events are told
	// momentSlack is how far moments may run ahead of the clock, when more than one
	// event comes in its smallest step.
	momentSlack = time.Millisecond
)

var _ pod.Events = (*Events)(nil)

// Events records events at the API server. Equal events are counted instead of
// repeated and floods are cut (gather.go). An event
// that the server does not answer is tried again for about two minutes, one that
// it refuses is dropped: events are news, not state.
type Events struct {
	cfg   EventsConfig
	queue chan *corev1.Event
	last  atomic.Int64 // the moment of the latest event, in nanoseconds
}

// EventsConfig holds what Events are built from. Every exported field is required.
type EventsConfig struct {
	Client *Client
	Node   string
	Log    *slog.Logger

	now func() time.Time // of tests
}

// NewEvents makes a recorder. What is recorded waits until Run sends it.
func NewEvents(cfg EventsConfig) *Events {
	if cfg.now == nil {
		cfg.now = time.Now
	}
	return &Events{cfg: cfg, queue: make(chan *corev1.Event, eventQueue)}
}

// Pod records an event about p, or about one of its containers. A container that
// the pod does not have is nothing that a reader could look up: of that nothing is
// said.
func (e *Events) Pod(p *corev1.Pod, container, eventType, reason, message string) {
	ref := podReference(p, container)
	if container != "" && ref.FieldPath == "" {
		e.cfg.Log.Debug("event dropped, it is about no container of the pod", "object", ref.Namespace+"/"+ref.Name, "container", container, "reason", reason, "message", message)
		return
	}
	e.record(ref, nil, eventType, reason, message)
}

// Annotated records an event about p with annotations for programs to read.
func (e *Events) Annotated(p *corev1.Pod, annotations map[string]string, eventType, reason, message string) {
	e.record(podReference(p, ""), annotations, eventType, reason, message)
}

// Node records an event about the node.
func (e *Events) Node(eventType, reason, message string) {
	e.record(nodeReference(e.cfg.Node), nil, eventType, reason, message)
}

// Volume records an event about a PersistentVolume.
func (e *Events) Volume(pv *corev1.PersistentVolume, eventType, reason, message string) {
	e.record(corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolume", Name: pv.Name, UID: pv.UID, ResourceVersion: pv.ResourceVersion}, nil, eventType, reason, message)
}

// Claim records an event about a PersistentVolumeClaim.
func (e *Events) Claim(claim *corev1.PersistentVolumeClaim, eventType, reason, message string) {
	e.record(corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion},
		nil, eventType, reason, message)
}

func (e *Events) record(ref corev1.ObjectReference, annotations map[string]string, eventType, reason, message string) {
	event := newEvent(ref, e.cfg.Node, eventType, reason, message, e.moment())
	event.Annotations = annotations
	select {
	case e.queue <- event:
	default:
		e.cfg.Log.Debug("event dropped, too many wait", "object", ref.Namespace+"/"+ref.Name, "reason", reason, "message", message)
	}
}

// moment is now, or a little later: events are named by their moment, and of two
// of one name the second would be lost. A clock that is set back is followed.
func (e *Events) moment() time.Time {
	for {
		last, next := e.last.Load(), e.cfg.now().UnixNano()
		if next <= last && last-next < int64(momentSlack) {
			next = last + 1
		}
		if e.last.CompareAndSwap(last, next) {
			return time.Unix(0, next)
		}
	}
}

func newEvent(ref corev1.ObjectReference, host, eventType, reason, message string, now time.Time) *corev1.Event {
	namespace := ref.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Name: eventName(ref.Name, now), Namespace: namespace},
		InvolvedObject:      ref,
		Reason:              reason,
		Message:             message,
		Type:                eventType,
		Count:               1,
		FirstTimestamp:      metav1.Time{Time: now},
		LastTimestamp:       metav1.Time{Time: now},
		Source:              corev1.EventSource{Component: Component, Host: host},
		ReportingController: Component,
		ReportingInstance:   host,
	}
}

// eventName names an event by what it is about, and by its moment.
func eventName(object string, now time.Time) string {
	return fmt.Sprintf("%s.%x", object, now.UnixNano())
}

// NodeEvent makes an event about a node, for Tell.
func NodeEvent(node, eventType, reason, message string, now time.Time) *corev1.Event {
	return newEvent(nodeReference(node), node, eventType, reason, message, now)
}

// Tell stores one event and returns when that is done, for an agent that ends.
func (c *Client) Tell(ctx context.Context, event *corev1.Event) error {
	_, err := c.events.Create(ctx, event.Namespace, event)
	return err
}

// Run sends events until ctx ends. What still waits then is dropped.
func (e *Events) Run(ctx context.Context) error {
	known := newGatherer()
	var told time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-e.queue:
			if err := e.send(ctx, known, event); err != nil && ctx.Err() == nil && time.Since(told) > eventDropNote {
				e.cfg.Log.Warn("cannot record event", "object", event.InvolvedObject.Namespace+"/"+event.InvolvedObject.Name, "reason", event.Reason, "err", err)
				told = time.Now()
			}
		}
	}
}

func (e *Events) send(ctx context.Context, known *gatherer, event *corev1.Event) error {
	news, ok := known.gather(event, e.moment())
	if !ok {
		return nil
	}
	for try := 1; ; try++ {
		stored, err := e.write(ctx, news)
		switch {
		case err == nil:
			known.stored(news.key, stored)
			return nil
		case apierrors.IsAlreadyExists(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			return nil // told before, or nobody is left to read it
		case refused(err) || try == eventTries:
			return err
		}
		wait := eventRetry
		if try == 1 { // a server that comes back is not met by all nodes at once
			wait = time.Duration(rand.Float64() * float64(wait))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// write counts a repeated event on the stored one, or stores a new one; the
// stored one may have expired in between.
func (e *Events) write(ctx context.Context, news gathered) (*corev1.Event, error) {
	events := e.cfg.Client.events
	if news.again {
		patch, err := news.patch()
		if err != nil {
			return nil, err
		}
		stored, err := events.Patch(ctx, news.Namespace, news.Name, types.StrategicMergePatchType, patch)
		if !apierrors.IsNotFound(err) {
			return stored, err
		}
	}
	return events.Create(ctx, news.Namespace, news.Event)
}

// refused reports whether the server read the request and said no for good. A server
// that is unwell or out of reach is asked again, and one that does not know the node:
// another certificate may be on its way. One for which it is too many is left with that,
// unless it says when to come again, which the library heeds: the others would wait
// behind an event of a namespace that may have no more.
func refused(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return false
	}
	switch answer.Status().Code {
	case http.StatusUnauthorized, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return false
	}
	return true
}
