package fakeapi

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
)

// bookmarkEvery is how often a watch that allows it gets a bookmark.
const bookmarkEvery = time.Minute

// watcher is one open watch. Its queue has no bound, so that a slow client
// blocks no other request. Server.mu guards it.
type watcher struct {
	sel     selector
	pending []watch.Event
	wake    chan struct{} // capacity 1
	closed  bool
}

func (w *watcher) offer(c change) {
	if e, ok := w.sel.eventFor(c); ok {
		w.pending = append(w.pending, e)
		w.poke()
	}
}

func (w *watcher) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// watch streams changes from a resource version on, or first the present
// objects: as additions when no version is asked for, as a streaming list that
// ends with a bookmark when sendInitialEvents is set.
func (s *Server) watch(rw http.ResponseWriter, r *request) error {
	sel, err := selectorOf(r)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	from := q.Get("resourceVersion")
	initial := q.Get("sendInitialEvents") == "true"
	bookmarks := q.Get("allowWatchBookmarks") == "true" || q.Get("allowWatchBookmarks") == "1"
	if initial && q.Get("resourceVersionMatch") != "NotOlderThan" {
		return apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "", field.ErrorList{
			field.Forbidden(field.NewPath("sendInitialEvents"), "needs resourceVersionMatch=NotOlderThan"),
		})
	}
	var since uint64
	if from != "" {
		if since, err = strconv.ParseUint(from, 10, 64); err != nil {
			return apierrors.NewBadRequest(fmt.Sprintf("invalid resource version %q", from))
		}
	}
	timeout := 30 * time.Minute
	if text := q.Get("timeoutSeconds"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return apierrors.NewBadRequest(fmt.Sprintf("invalid timeoutSeconds %q", text))
		}
		if n > 0 {
			timeout = time.Duration(n) * time.Second
		}
	}

	out, err := newWatchStream(rw, r)
	if err != nil {
		return err
	}
	w := &watcher{sel: sel, wake: make(chan struct{}, 1)}
	s.mu.Lock()
	switch {
	case initial || since == 0:
		for _, obj := range s.selectLocked(sel) {
			w.pending = append(w.pending, watch.Event{Type: watch.Added, Object: obj})
		}
		if initial && bookmarks {
			w.pending = append(w.pending, s.bookmarkLocked(sel.res, true))
		}
	case since < s.floor:
		s.mu.Unlock()
		return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", since, s.floor))
	default:
		for _, c := range s.changes {
			if c.version > since {
				w.offer(c)
			}
		}
	}
	s.watchers[w] = true
	s.mu.Unlock()
	w.poke()
	defer func() {
		s.mu.Lock()
		delete(s.watchers, w)
		s.mu.Unlock()
	}()

	rw.WriteHeader(http.StatusOK)
	out.flush()
	end := time.NewTimer(timeout)
	defer end.Stop()
	var tick <-chan time.Time
	if bookmarks {
		t := time.NewTicker(bookmarkEvery)
		defer t.Stop()
		tick = t.C
	}
	for {
		select {
		case <-r.Context().Done():
			return nil
		case <-end.C:
			return nil
		case <-tick:
			s.mu.Lock()
			w.pending = append(w.pending, s.bookmarkLocked(sel.res, false))
			s.mu.Unlock()
		case <-w.wake:
		}
		s.mu.Lock()
		batch, closed := w.pending, w.closed
		w.pending = nil
		s.mu.Unlock()
		for _, e := range batch {
			if err := out.send(e); err != nil {
				return nil // the client has gone
			}
		}
		if closed {
			return nil
		}
	}
}

func (s *Server) bookmarkLocked(r *resource, endOfList bool) watch.Event {
	obj := newObject(r.gvk)
	m := accessor(obj)
	m.SetResourceVersion(strconv.FormatUint(s.version, 10))
	if endOfList {
		m.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	return watch.Event{Type: watch.Bookmark, Object: obj}
}

// watchStream writes events in the format that the client asked for.
type watchStream struct {
	frame    interface{ Write([]byte) (int, error) }
	flush    func()
	embedded runtime.Encoder
	event    runtime.Encoder
}

func newWatchStream(rw http.ResponseWriter, r *request) (*watchStream, error) {
	info := encoding(r.Header.Get("Accept"))
	stream := info.StreamSerializer
	if stream == nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("%s cannot be streamed", info.MediaType))
	}
	media := info.MediaType
	if media != runtime.ContentTypeJSON {
		media += ";stream=watch"
	}
	rw.Header().Set("Content-Type", media)
	flusher, ok := rw.(http.Flusher)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("the connection cannot stream"))
	}
	return &watchStream{
		frame:    stream.Framer.NewFrameWriter(rw),
		flush:    flusher.Flush,
		embedded: info.Serializer,
		event:    stream.Serializer,
	}, nil
}

func (out *watchStream) send(e watch.Event) error {
	raw, err := runtime.Encode(out.embedded, e.Object)
	if err != nil {
		return fmt.Errorf("encode %s: %w", e.Type, err)
	}
	text, err := runtime.Encode(out.event, &metav1.WatchEvent{
		Type:   string(e.Type),
		Object: runtime.RawExtension{Raw: raw},
	})
	if err != nil {
		return fmt.Errorf("encode %s: %w", e.Type, err)
	}
	if _, err := out.frame.Write(text); err != nil {
		return err
	}
	out.flush()
	return nil
}

// CloseWatches ends every open watch, as a server that restarts does.
func (s *Server) CloseWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watchers {
		w.closed = true
		w.poke()
	}
}

// Compact drops all changes: a watch from an earlier version is answered
// with 410 Gone.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.floor, s.changes = s.version, nil
}

// Watches is the number of open watches of a resource, by its plural.
func (s *Server) Watches(plural string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for w := range s.watchers {
		if w.sel.res.name == plural {
			n++
		}
	}
	return n
}
