package fakeapi

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"keelson/test/kit/memhttp"
)

// Server is the fake API server.
type Server struct {
	mu       sync.Mutex
	version  uint64 // last resource version given out
	floor    uint64 // changes up to here are compacted
	objects  map[schema.GroupVersionResource]map[string]runtime.Object
	changes  []change // since floor, oldest first
	watchers map[*watcher]bool
	serial   uint64 // of uids and generated names

	tokens map[string]authenticationv1.UserInfo
	access func(authorizationv1.SubjectAccessReviewSpec) bool
}

// New builds a server with the namespaces that every cluster has and a default
// service account in each.
func New() *Server {
	s := &Server{
		objects:  map[schema.GroupVersionResource]map[string]runtime.Object{},
		watchers: map[*watcher]bool{},
		version:  1,
		tokens:   map[string]authenticationv1.UserInfo{},
	}
	for gvr := range resources {
		s.objects[gvr] = map[string]runtime.Object{}
	}
	for _, ns := range []string{"default", "kube-system", "kube-node-lease", "kube-public"} {
		s.AddNamespace(ns)
	}
	return s
}

// RESTConfig reaches the server without a network.
func (s *Server) RESTConfig() *rest.Config {
	return &rest.Config{Host: "http://fakeapi", Transport: memhttp.Transport(s), QPS: -1}
}

// Client is a client of RESTConfig, for tests that act as users and controllers.
func (s *Server) Client() kubernetes.Interface {
	return kubernetes.NewForConfigOrDie(s.RESTConfig())
}

// request is a parsed API request.
type request struct {
	*http.Request
	res       *resource // or
	review    *review
	namespace string
	name      string
	sub       string
	body      []byte
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/healthz", "/livez", "/readyz":
		io.WriteString(w, "ok") // fails only if the client has gone
		return
	case "/version":
		w.Header().Set("Content-Type", "application/json")
		// It fails only if the client has gone.
		io.WriteString(w, `{"major":"1","minor":"36","gitVersion":"v1.36.3","platform":"linux/amd64"}`)
		return
	}
	req, err := parse(r)
	if err == nil {
		err = s.serve(w, req)
	}
	if err != nil {
		writeError(w, r, err)
	}
}

// parse cuts a path of the form
// /api/v1|apis/GROUP/VERSION [/namespaces/NS] /RESOURCE [/NAME [/SUBRESOURCE]].
func parse(r *http.Request) (*request, error) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	var gv schema.GroupVersion
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		gv.Version, parts = parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		gv.Group, gv.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return nil, notFoundPath(r)
	}
	req := &request{Request: r}
	if len(parts) >= 3 && parts[0] == "namespaces" && parts[2] != "status" && parts[2] != "finalize" {
		req.namespace, parts = parts[1], parts[2:]
	}
	if len(parts) > 1 {
		req.name = parts[1]
	}
	if len(parts) > 2 {
		req.sub = strings.Join(parts[2:], "/")
	}
	req.res, req.review = resources[gv.WithResource(parts[0])], reviews[gv.WithResource(parts[0])]
	if req.res == nil && req.review == nil {
		return nil, notFoundPath(r)
	}
	if req.res != nil && req.res.namespaced && req.namespace == "" && (req.name != "" || r.Method == http.MethodPost) {
		return nil, apierrors.NewBadRequest("the namespace must be given")
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, 3<<20))
	if err != nil {
		return nil, apierrors.NewRequestEntityTooLargeError(err.Error())
	}
	req.body = body
	return req, nil
}

func notFoundPath(r *http.Request) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: "the server could not find the requested resource (" + r.URL.Path + ")",
	}}
}

func (s *Server) serve(w http.ResponseWriter, r *request) error {
	if r.review != nil {
		return s.review(w, r)
	}
	q := r.URL.Query()
	switch {
	case r.Method == http.MethodGet && (q.Get("watch") == "true" || q.Get("watch") == "1"):
		return s.watch(w, r)
	case r.Method == http.MethodGet && r.name == "":
		return s.list(w, r)
	case r.Method == http.MethodGet:
		obj, err := s.get(r)
		return reply(w, r, http.StatusOK, obj, err)
	case r.Method == http.MethodPost && r.name == "":
		obj, err := s.create(r)
		return reply(w, r, http.StatusCreated, obj, err)
	case r.Method == http.MethodPost:
		obj, err := s.createSub(r)
		return reply(w, r, http.StatusCreated, obj, err)
	case r.Method == http.MethodPut && r.name != "":
		obj, err := s.update(r)
		return reply(w, r, http.StatusOK, obj, err)
	case r.Method == http.MethodPatch && r.name != "":
		obj, err := s.patch(r)
		return reply(w, r, http.StatusOK, obj, err)
	case r.Method == http.MethodDelete && r.name != "" && r.sub == "":
		obj, err := s.remove(r)
		return reply(w, r, http.StatusOK, obj, err)
	case r.Method == http.MethodDelete && r.name == "" && r.sub == "":
		err := s.removeAll(r)
		return reply(w, r, http.StatusOK, &metav1.Status{Status: metav1.StatusSuccess}, err)
	}
	return apierrors.NewMethodNotSupported(r.res.gvr().GroupResource(), strings.ToLower(r.Method))
}

// encoding selects the format of an answer. A client that prefers a table gets plain JSON.
func encoding(accept string) runtime.SerializerInfo {
	types := scheme.Codecs.SupportedMediaTypes()
	for clause := range strings.SplitSeq(accept, ",") {
		media, params, _ := strings.Cut(strings.TrimSpace(clause), ";")
		if strings.Contains(params, "as=") {
			continue
		}
		if media == runtime.ContentTypeProtobuf {
			if info, ok := runtime.SerializerInfoForMediaType(types, media); ok {
				return info
			}
		}
		if media == runtime.ContentTypeJSON || media == "*/*" {
			break
		}
	}
	info, ok := runtime.SerializerInfoForMediaType(types, runtime.ContentTypeJSON)
	if !ok {
		panic("fakeapi: the scheme has no JSON serializer")
	}
	return info
}

func reply(w http.ResponseWriter, r *request, code int, obj runtime.Object, err error) error {
	if err != nil {
		return err
	}
	return write(w, r.Request, code, obj)
}

func write(w http.ResponseWriter, r *http.Request, code int, obj runtime.Object) error {
	info := encoding(r.Header.Get("Accept"))
	// A versioning codec cannot be used: it writes to the objects, which
	// other requests read at the same time.
	text, err := runtime.Encode(info.Serializer, obj)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("encode %T: %w", obj, err))
	}
	w.Header().Set("Content-Type", info.MediaType)
	w.WriteHeader(code)
	w.Write(text) // fails only if the client has gone
	return nil
}

func writeError(w http.ResponseWriter, r *http.Request, err error) {
	var st metav1.Status
	if s, ok := err.(apierrors.APIStatus); ok {
		st = s.Status()
	} else {
		st = apierrors.NewInternalError(err).Status()
	}
	st.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	st.Status = metav1.StatusFailure
	if st.Details != nil && st.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(st.Details.RetryAfterSeconds))
	}
	if werr := write(w, r, int(st.Code), &st); werr != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// decode reads a body in JSON or protobuf into an object of the given kind.
func decode(r *request, gvk schema.GroupVersionKind) (runtime.Object, error) {
	obj, got, err := scheme.Codecs.UniversalDeserializer().Decode(r.body, &gvk, nil)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("decode body: %v", err))
	}
	if *got != gvk {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the body is a %s, want %s", got, gvk))
	}
	return obj, nil
}

func toJSON(obj runtime.Object) ([]byte, error) {
	text, err := json.Marshal(obj)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("render %T: %w", obj, err))
	}
	return text, nil
}
