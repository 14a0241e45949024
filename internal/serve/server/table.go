package server

import (
	"net/http"
	"path"
	"slices"
	"strings"
)

// area is all endpoints below one first path segment.
type area struct {
	root string
	// rights are subresources of nodes, of which one has to be authorized. They are checked in this order.
	rights []string
	// listed areas are listed by /statusz.
	listed bool
	// debug areas are served only if debugging handlers are enabled.
	debug bool
	// long areas have long-running requests.
	long bool
	// stubs are path prefixes that answer 405, not 404, if debugging handlers are disabled.
	stubs     []string
	endpoints []endpoint
}

// endpoint is one endpoint with its paths and methods.
type endpoint struct {
	patterns []string // of http.ServeMux, without a method
	methods  []string // nil: any
	// handler returns the handler, or nil if the endpoint has no source. Its path is then not found.
	handler func(*Server) http.HandlerFunc
}

var (
	narrowPods    = []string{subresourcePods, subresourceProxy}
	narrowHealthz = []string{subresourceHealthz, subresourceProxy}
	narrowConfigz = []string{subresourceConfigz, subresourceProxy}
	onlyProxy     = []string{subresourceProxy}

	get       = []string{http.MethodGet}
	post      = []string{http.MethodPost}
	getOrPost = []string{http.MethodGet, http.MethodPost}
)

// areas are all endpoints.
var areas = []area{
	{
		root:   "healthz",
		listed: true,
		rights: narrowHealthz,
		endpoints: []endpoint{
			{patterns: []string{"/healthz"}, handler: (*Server).healthz},
			{patterns: []string{"/healthz/{check}"}, handler: (*Server).healthzOne},
		},
	},
	{
		root:   "pods",
		rights: narrowPods,
		endpoints: []endpoint{
			{patterns: []string{"/pods", "/pods/{$}"}, methods: get, handler: (*Server).pods},
		},
	},
	{
		root:   "stats",
		rights: []string{subresourceStats},
		endpoints: []endpoint{
			{patterns: []string{"/stats/summary"}, methods: getOrPost, handler: (*Server).summary},
		},
	},
	{
		root:   "metrics",
		listed: true,
		rights: []string{subresourceMetrics},
		endpoints: []endpoint{
			{patterns: []string{"/metrics"}, handler: (*Server).metricsAll},
			{patterns: []string{"/metrics/cadvisor"}, handler: (*Server).metricsContainers},
			{patterns: []string{"/metrics/resource"}, handler: (*Server).metricsResource},
			{patterns: []string{"/metrics/probes"}, handler: (*Server).metricsProbes},
			{patterns: []string{"/metrics/slis"}, handler: (*Server).metricsSLIs},
		},
	},
	{
		root:   "run",
		rights: onlyProxy,
		debug:  true,
		stubs:  []string{"/run/"},
		endpoints: []endpoint{
			{
				patterns: []string{"/run/{ns}/{pod}/{container}", "/run/{ns}/{pod}/{uid}/{container}"},
				methods:  post,
				handler:  (*Server).run,
			},
		},
	},
	{
		root:   "exec",
		rights: onlyProxy,
		debug:  true,
		long:   true,
		stubs:  []string{"/exec/"},
		endpoints: []endpoint{
			{
				patterns: []string{"/exec/{ns}/{pod}/{container}", "/exec/{ns}/{pod}/{uid}/{container}"},
				methods:  getOrPost,
				handler:  (*Server).exec,
			},
		},
	},
	{
		root:   "attach",
		rights: onlyProxy,
		debug:  true,
		long:   true,
		stubs:  []string{"/attach/"},
		endpoints: []endpoint{
			{
				patterns: []string{"/attach/{ns}/{pod}/{container}", "/attach/{ns}/{pod}/{uid}/{container}"},
				methods:  getOrPost,
				handler:  (*Server).attach,
			},
		},
	},
	{
		root:   "portForward",
		rights: onlyProxy,
		debug:  true,
		long:   true,
		stubs:  []string{"/portForward/"},
		endpoints: []endpoint{
			{
				patterns: []string{"/portForward/{ns}/{pod}", "/portForward/{ns}/{pod}/{uid}"},
				methods:  getOrPost,
				handler:  (*Server).portForward,
			},
		},
	},
	{
		root:   "containerLogs",
		rights: onlyProxy,
		debug:  true,
		stubs:  []string{"/containerLogs/"},
		endpoints: []endpoint{
			{
				patterns: []string{"/containerLogs/{ns}/{pod}/{container}"},
				methods:  get,
				handler:  (*Server).containerLogs,
			},
		},
	},
	{
		root:   "runningpods",
		rights: narrowPods,
		debug:  true,
		stubs:  []string{"/runningpods/"},
		endpoints: []endpoint{
			{patterns: []string{"/runningpods", "/runningpods/{$}"}, methods: get, handler: (*Server).runningPods},
		},
	},
	{
		root:   "configz",
		listed: true,
		rights: narrowConfigz,
		debug:  true,
		endpoints: []endpoint{
			{patterns: []string{"/configz"}, handler: (*Server).configz},
		},
	},
	{
		root:   "logs",
		rights: []string{subresourceLog},
		debug:  true,
		stubs:  []string{"/logs/"},
		endpoints: []endpoint{
			{patterns: []string{"/logs/{path...}"}, methods: get, handler: (*Server).systemLogs},
		},
	},
	{
		root:   "debug",
		listed: true,
		rights: onlyProxy,
		debug:  true,
		long:   true,
		stubs:  []string{"/debug/pprof/"},
		endpoints: []endpoint{
			{patterns: []string{"/debug/pprof/{profile...}"}, handler: (*Server).pprof},
			{patterns: []string{"/debug/flags/v"}, handler: (*Server).verbosity},
			{patterns: []string{pathExplain}, methods: get, handler: (*Server).explainAll},
			{patterns: []string{pathExplainPod}, methods: get, handler: (*Server).explainPod},
		},
	},
	{
		root:   "checkpoint",
		rights: []string{subresourceCheckpoint},
		debug:  true,
		endpoints: []endpoint{
			{patterns: []string{"/checkpoint/{ns}/{pod}/{container}"}, methods: post, handler: (*Server).checkpoint},
		},
	},
	{
		root:   "statusz",
		rights: []string{subresourceStatusz},
		debug:  true,
		endpoints: []endpoint{
			{patterns: []string{"/statusz"}, handler: (*Server).statusz},
		},
	},
	{
		root:   "flagz",
		listed: true,
		rights: []string{subresourceConfigz},
		debug:  true,
		endpoints: []endpoint{
			{patterns: []string{"/flagz"}, handler: (*Server).flagz},
		},
	},
}

// areaOf returns the area of a path by its first segment: /metrics/x belongs to metrics, /metricsx does not.
func areaOf(urlPath string) (area, bool) {
	first, _, _ := strings.Cut(strings.TrimPrefix(urlPath, "/"), "/")
	i := slices.IndexFunc(areas, func(a area) bool { return a.root == first })
	if i < 0 || !strings.HasPrefix(urlPath, "/") {
		return area{}, false
	}
	return areas[i], true
}

// rightsFor returns the subresources of nodes, of which one has to be authorized.
func rightsFor(urlPath string) []string {
	if a, ok := areaOf(urlPath); ok {
		return a.rights
	}
	return onlyProxy
}

// verbFor returns the authorization verb of a method. HEAD and OPTIONS have none, so only users with all verbs are
// authorized.
func verbFor(method string) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodGet:
		return "get"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	return ""
}

// bucketFor returns the value of the path label: the name of a known area, for metrics with one more segment, or other.
func bucketFor(urlPath string) (bucket string, long bool) {
	a, ok := areaOf(urlPath)
	if !ok {
		return "other", false
	}
	if a.root != "metrics" {
		return a.root, a.long
	}
	for _, e := range a.endpoints {
		if p := e.patterns[0]; urlPath == p || strings.HasPrefix(urlPath, p+"/") && p != "/metrics" {
			return strings.TrimPrefix(p, "/"), a.long
		}
	}
	return "other", false
}

// routes returns the mux of all endpoints, or for the read-only port of those that need no authorization.
func (s *Server) routes(debug bool) *http.ServeMux {
	mux := http.NewServeMux()
	for _, a := range areas {
		if a.debug && !debug {
			for _, p := range a.stubs {
				mux.HandleFunc(p, disabled(textDebugDisabled))
			}
			continue
		}
		for _, e := range a.endpoints {
			h := e.handler(s)
			if h == nil {
				continue
			}
			for _, p := range e.patterns {
				mux.HandleFunc(p, checkArea(a, onlyMethods(e.methods, s.traced(p, h))))
			}
		}
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, textNoSuchPath, http.StatusNotFound)
	})
	return mux
}

// traced makes a span of the request.
func (s *Server) traced(route string, next http.HandlerFunc) http.HandlerFunc {
	if s.cfg.Trace == nil {
		return next
	}
	return func(w http.ResponseWriter, r *http.Request) {
		seen := &recorder{ResponseWriter: w}
		r, end := s.cfg.Trace(r, route)
		defer func() { end(max(seen.status, http.StatusOK)) }()
		next(seen, r)
	}
}

// checkArea rejects requests whose area differs between authorization and routing. Routing reads the path segment by
// segment before unescaping, and authorization after it, so they differ for paths such as /metrics%2F...
func checkArea(a area, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		seen, ok := areaOf(r.URL.Path)
		if !ok || seen.root != a.root || !strings.HasPrefix(path.Clean(r.URL.Path)+"/", "/"+a.root+"/") {
			http.Error(w, textNoSuchPath, http.StatusNotFound)
			return
		}
		next(w, r)
	}
}

// onlyMethods rejects other methods. Nil admits any.
func onlyMethods(methods []string, next http.HandlerFunc) http.HandlerFunc {
	if methods == nil {
		return next
	}
	allow := strings.Join(methods, ", ")
	return func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(methods, r.Method) {
			w.Header().Set("Allow", allow)
			writeText(w, http.StatusMethodNotAllowed, textMethodNotAllowed)
			return
		}
		next(w, r)
	}
}

// disabled handles disabled endpoints.
func disabled(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, text, http.StatusMethodNotAllowed) }
}
