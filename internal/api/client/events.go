package client

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

	"keelson/internal/host/clock"
	"keelson/internal/pods/pod"
)

const (
	eventQueue    = 1000 // maximum number of queued events; further ones are dropped
	eventTries    = 12
	eventRetry    = 10 * time.Second
	eventDropNote = time.Minute // how often dropped events are logged
	// timeSlack is how far event times may be ahead of the clock, when there are several events within its resolution.
	timeSlack = time.Millisecond
)

var _ pod.Events = (*Events)(nil)

// Events records events at the API server. Equal events are counted instead of repeated, and floods are limited
// (aggregate.go). An event that cannot be sent is retried for about two minutes. One that the server rejects is
// dropped.
type Events struct {
	cfg   EventsConfig
	queue chan *corev1.Event
	last  atomic.Int64 // time of the latest event, in nanoseconds
}

// EventsConfig holds the configuration of Events. All exported fields are required.
type EventsConfig struct {
	Client *Client
	Node   string
	Log    *slog.Logger

	now func() time.Time // for tests
}

// NewEvents returns a recorder. Events are queued until Run sends them.
func NewEvents(cfg EventsConfig) *Events {
	if cfg.now == nil {
		cfg.now = time.Now
	}
	return &Events{cfg: cfg, queue: make(chan *corev1.Event, eventQueue)}
}

// Pod records an event about p or one of its containers. An event about a container that is not in the pod's spec is
// dropped.
func (e *Events) Pod(p *corev1.Pod, container, eventType, reason, message string) {
	ref := podReference(p, container)
	if container != "" && ref.FieldPath == "" {
		e.cfg.Log.Debug("dropped event about unknown container",
			"object", ref.Namespace+"/"+ref.Name, "containerName", container, "reason", reason, "message", message)
		return
	}
	e.record(ref, nil, eventType, reason, message)
}

// Annotated records an event about p with annotations.
func (e *Events) Annotated(p *corev1.Pod, annotations map[string]string, eventType, reason, message string) {
	e.record(podReference(p, ""), annotations, eventType, reason, message)
}

// Node records an event about the node.
func (e *Events) Node(eventType, reason, message string) {
	e.record(nodeReference(e.cfg.Node), nil, eventType, reason, message)
}

// Volume records an event about a PersistentVolume.
func (e *Events) Volume(pv *corev1.PersistentVolume, eventType, reason, message string) {
	e.record(corev1.ObjectReference{
		APIVersion:      "v1",
		Kind:            "PersistentVolume",
		Name:            pv.Name,
		UID:             pv.UID,
		ResourceVersion: pv.ResourceVersion,
	}, nil, eventType, reason, message)
}

// Claim records an event about a PersistentVolumeClaim.
func (e *Events) Claim(claim *corev1.PersistentVolumeClaim, eventType, reason, message string) {
	e.record(corev1.ObjectReference{
		APIVersion:      "v1",
		Kind:            "PersistentVolumeClaim",
		Namespace:       claim.Namespace,
		Name:            claim.Name,
		UID:             claim.UID,
		ResourceVersion: claim.ResourceVersion,
	},
		nil, eventType, reason, message)
}

func (e *Events) record(ref corev1.ObjectReference, annotations map[string]string, eventType, reason, message string) {
	event := newEvent(ref, e.cfg.Node, eventType, reason, message, e.uniqueTime())
	event.Annotations = annotations
	select {
	case e.queue <- event:
	default:
		e.cfg.Log.Debug("dropped event, the queue is full",
			"object", ref.Namespace+"/"+ref.Name, "reason", reason, "message", message)
	}
}

// uniqueTime returns the current time, or a slightly later one, because events are named by their time and names have
// to be unique. If the clock is set back, the times follow it.
func (e *Events) uniqueTime() time.Time {
	for {
		last, next := e.last.Load(), e.cfg.now().UnixNano()
		if next <= last && last-next < int64(timeSlack) {
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

// eventName returns the name of an event, from the name of its object and its time.
func eventName(object string, now time.Time) string {
	return fmt.Sprintf("%s.%x", object, now.UnixNano())
}

// NodeEvent returns an event about a node, for CreateEvent.
func NodeEvent(node, eventType, reason, message string, now time.Time) *corev1.Event {
	return newEvent(nodeReference(node), node, eventType, reason, message, now)
}

// CreateEvent stores an event synchronously, for an agent that is about to exit.
func (c *Client) CreateEvent(ctx context.Context, event *corev1.Event) error {
	_, err := c.events.Create(ctx, event.Namespace, event)
	return err
}

// Run sends events until ctx ends. Events that are queued then are dropped.
func (e *Events) Run(ctx context.Context) error {
	known := newAggregator()
	var loggedAt time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-e.queue:
			if err := e.send(ctx, known, event); err != nil && ctx.Err() == nil &&
				time.Since(loggedAt) > eventDropNote {
				e.cfg.Log.Warn("failed to record event",
					"object", event.InvolvedObject.Namespace+"/"+event.InvolvedObject.Name, "reason", event.Reason,
					"err", err)
				loggedAt = time.Now()
			}
		}
	}
}

func (e *Events) send(ctx context.Context, known *aggregator, event *corev1.Event) error {
	news, ok := known.aggregate(event, e.uniqueTime())
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
			return nil // already stored, or its namespace is being deleted
		case isPermanent(err) || try == eventTries:
			return err
		}
		wait := eventRetry
		if try == 1 { // random, so that the nodes do not retry at the same time
			wait = time.Duration(rand.Float64() * float64(wait))
		}
		if !clock.Sleep(ctx, wait) {
			return ctx.Err()
		}
	}
}

// write increments the count of a stored event, or stores a new one. The stored one may have expired in the meantime.
func (e *Events) write(ctx context.Context, news aggregatedEvent) (*corev1.Event, error) {
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

// isPermanent reports whether the server has rejected the request permanently. A request is retried if the server is
// unavailable, or does not accept the credentials of the node, which may get another certificate. TooManyRequests is
// permanent: client-go has already retried a response with a Retry-After header, and retries of an event for a
// namespace with an exhausted quota would block other events.
func isPermanent(err error) bool {
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
