package objectcache

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

// fakeAPI behaves as the API server does for single ConfigMaps, Secrets and tokens: a watch without a resource version
// begins with the object, if it exists, and continues with its changes.
type fakeAPI struct {
	t *testing.T
	*httptest.Server

	mu       sync.Mutex
	rv       int
	objects  map[string]object      // by path
	watchers map[chan string]string // to path
	refuse   int                    // number of watches to reject
	lag      int                    // number of token requests to forbid, as by a server that has not seen the pod yet
	absent   struct {               // number of token requests to answer with NotFound, and for which object
		times      int
		kind, name string
	}
	behind   map[string]object      // older objects that new watches begin with
	requests []string               // verb and path
	asked    []*authv1.TokenRequest // token requests
	life     time.Duration          // of tokens
}

func newFakeAPI(t *testing.T) *fakeAPI {
	f := &fakeAPI{
		t:        t,
		rv:       100,
		objects:  map[string]object{},
		behind:   map[string]object{},
		watchers: map[chan string]string{},
		life:     time.Hour,
	}
	f.Server = httptest.NewServer(f)
	t.Cleanup(func() { f.CloseClientConnections(); f.Close() })
	return f
}

func (f *fakeAPI) client() rest.Interface {
	f.t.Helper()
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		f.t.Fatal(err)
	}
	metav1.AddToGroupVersion(scheme, v1.SchemeGroupVersion)
	gv := v1.SchemeGroupVersion
	c, err := rest.RESTClientFor(&rest.Config{
		Host:    f.URL,
		APIPath: "/api",
		ContentConfig: rest.ContentConfig{
			GroupVersion:         &gv,
			NegotiatedSerializer: serializer.NewCodecFactory(scheme).WithoutConversion(),
		},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}

func pathOf(o object) string {
	kind := "configmaps"
	if _, ok := o.(*v1.Secret); ok {
		kind = "secrets"
	}
	return fmt.Sprintf("/api/v1/namespaces/%s/%s/%s", o.GetNamespace(), kind, o.GetName())
}

func encode(o object) string {
	switch o := o.(type) {
	case *v1.ConfigMap:
		o.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	case *v1.Secret:
		o.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}
	}
	b, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func event(kind string, o object) string {
	return fmt.Sprintf(`{"type":%q,"object":%s}`, kind, encode(o))
}

func (f *fakeAPI) put(o object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	kind := "ADDED"
	if _, ok := f.objects[pathOf(o)]; ok {
		kind = "MODIFIED"
	}
	f.rv++
	o.SetResourceVersion(strconv.Itoa(f.rv))
	o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "test"}})
	f.objects[pathOf(o)] = o
	f.notifyLocked(pathOf(o), event(kind, o))
}

func (f *fakeAPI) remove(o object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rv++
	gone := f.objects[pathOf(o)].DeepCopyObject().(object)
	gone.SetResourceVersion(strconv.Itoa(f.rv))
	delete(f.objects, pathOf(o))
	f.notifyLocked(pathOf(o), event("DELETED", gone))
}

func (f *fakeAPI) notifyLocked(path, event string) {
	for ch, of := range f.watchers {
		if of == path {
			ch <- event
		}
	}
}

// hangUp ends all watches, as a server does from time to time.
func (f *fakeAPI) hangUp() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for ch := range f.watchers {
		close(ch)
		delete(f.watchers, ch)
	}
}

func (f *fakeAPI) count(verb string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, r := range f.requests {
		if strings.HasPrefix(r, verb+" ") {
			n++
		}
	}
	return n
}

func (f *fakeAPI) watching() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.watchers)
}

func status(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   "Failure",
		Code:     int32(code),
		Reason:   reason,
		Message:  message,
	}); err != nil {
		panic(err)
	}
}

// notFound writes the response of a server that does not have the object.
func notFound(w http.ResponseWriter, kind, name string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(404)
	err := apierrors.NewNotFound(schema.GroupResource{Resource: kind}, name)
	err.ErrStatus.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	if err := json.NewEncoder(w).Encode(err.ErrStatus); err != nil {
		panic(err)
	}
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/token") {
		f.token(w, r)
		return
	}
	if r.URL.Query().Get("watch") == "true" {
		f.watch(w, r)
		return
	}
	f.mu.Lock()
	f.requests = append(f.requests, "get "+r.URL.Path)
	o := f.objects[r.URL.Path]
	f.mu.Unlock()
	if o == nil {
		status(w, 404, metav1.StatusReasonNotFound, "gone")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, encode(o))
}

func (f *fakeAPI) watch(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path + "/" + strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	ch := make(chan string, 100)
	f.mu.Lock()
	f.requests = append(f.requests, "watch "+path)
	if f.refuse > 0 {
		f.refuse--
		f.mu.Unlock()
		status(w, 403, metav1.StatusReasonForbidden, "no relationship found between node and this object")
		return
	}
	if o := f.behind[path]; o != nil {
		ch <- event("ADDED", o)
	} else if o := f.objects[path]; o != nil {
		ch <- event("ADDED", o)
	}
	f.watchers[ch] = path
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.watchers, ch)
		f.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "application/json")
	w.(http.Flusher).Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case ev, ok := <-ch:
			if !ok {
				return
			}
			fmt.Fprintln(w, ev)
			w.(http.Flusher).Flush()
		}
	}
}

func (f *fakeAPI) token(w http.ResponseWriter, r *http.Request) {
	var req authv1.TokenRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		status(w, 400, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, "token "+r.URL.Path)
	f.asked = append(f.asked, req.DeepCopy())
	if f.refuse > 0 {
		f.refuse--
		status(w, 500, metav1.StatusReasonInternalError, "not today")
		return
	}
	if f.lag > 0 {
		f.lag--
		status(w, 403, metav1.StatusReasonForbidden,
			"node requested token bound to a pod scheduled on a different node")
		return
	}
	if f.absent.times > 0 {
		f.absent.times--
		notFound(w, f.absent.kind, f.absent.name)
		return
	}
	life := int64(f.life / time.Second)
	req.Spec.ExpirationSeconds = &life
	req.Status = authv1.TokenRequestStatus{
		Token:               fmt.Sprintf("token-%d", len(f.asked)),
		ExpirationTimestamp: metav1.NewTime(time.Now().Add(f.life)),
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(201)
	if err := json.NewEncoder(w).Encode(req); err != nil {
		panic(err)
	}
}
