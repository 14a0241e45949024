package rig

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// watchCall is the Watch method of any typed client.
type watchCall func(context.Context, metav1.ListOptions) (watch.Interface, error)

// event is one change of the watched object.
type event[T runtime.Object] struct {
	object T
	gone   bool
}

// untilThere returns when an object of that name exists.
func untilThere(ctx context.Context, call watchCall, name string) error {
	_, err := untilEvent(ctx, call, name, func(e event[runtime.Object]) bool { return !e.gone }, nil)
	return err
}

// until waits until want returns true for the object, and returns the object.
func until[T runtime.Object](ctx context.Context, call watchCall, name string, want func(T) bool) (T, error) {
	return untilEvent(ctx, call, name, func(e event[T]) bool { return !e.gone && want(e.object) }, nil)
}

// untilEvent watches one object until want returns true for an event. A watch without a resource version begins with
// the current objects. If the server ends the watch or cannot be reached, a new watch is opened. before, if not nil,
// is called when a watch is open: if it returns true, untilEvent returns.
func untilEvent[T runtime.Object](
	ctx context.Context,
	call watchCall,
	name string,
	want func(event[T]) bool,
	before func(context.Context) (bool, error),
) (T, error) {
	var last T
	for {
		w, err := call(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		if err != nil {
			if ctx.Err() != nil {
				return last, waited(ctx, name, last)
			}
			pause := time.NewTimer(100 * time.Millisecond) // the server cannot be reached
			select {
			case <-ctx.Done():
			case <-pause.C:
			}
			pause.Stop()
			continue
		}
		if before != nil {
			if done, err := before(ctx); err == nil && done {
				w.Stop()
				return last, nil
			}
		}
		for e := range w.ResultChan() {
			object, ok := e.Object.(T)
			if !ok {
				break // an error of the watch itself
			}
			last = object
			if want(event[T]{object, e.Type == watch.Deleted}) {
				w.Stop()
				return object, nil
			}
		}
		w.Stop()
		if ctx.Err() != nil {
			return last, waited(ctx, name, last)
		}
	}
}

// waited returns the error of a wait that timed out, with the last seen state of the object.
func waited(ctx context.Context, name string, last any) error {
	state := "never seen"
	switch o := last.(type) {
	case *corev1.Pod:
		if o != nil {
			state = fmt.Sprintf("phase %s, conditions %v, containers %v", o.Status.Phase, o.Status.Conditions,
				o.Status.ContainerStatuses)
		}
	case *corev1.Node:
		if o != nil {
			state = fmt.Sprintf("conditions %v", o.Status.Conditions)
		}
	}
	return fmt.Errorf("wait for %s: %w; last seen: %s", name, context.Cause(ctx), state)
}
