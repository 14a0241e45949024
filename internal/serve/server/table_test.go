package server_test

import (
	"crypto/x509"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authnv1 "k8s.io/api/authentication/v1"

	"keelson/internal/serve/server"
	"keelson/test/kit/parity"
)

// sample fills a pattern with an existing pod.
func sample(pattern string) string {
	return strings.NewReplacer("{$}", "", "{ns}", "default", "{pod}", "web", "{uid}", "uid-web", "{container}", "main",
		"{check}", "ping", "{profile...}", "cmdline", "{path...}", "").Replace(pattern)
}

// everyMethod lists the methods of requests, including an unknown one.
var everyMethod = []string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "BREW"}

// hasVerb reports whether the method has an authorization verb. Clients with a single right have no other methods.
func hasVerb(method string) bool {
	return slices.Contains([]string{"GET", "POST", "PUT", "PATCH", "DELETE"}, method)
}

// specification lists all endpoints: pattern, rights of which a client needs one, methods (none: any), and debug for
// those of the debugging handlers.
const specification = `
/healthz                                      healthz proxy
/healthz/{check}                              healthz proxy
/pods                                         pods proxy      GET
/pods/{$}                                     pods proxy      GET
/stats/summary                                stats           GET POST
/metrics                                      metrics
/metrics/cadvisor                             metrics
/metrics/resource                             metrics
/metrics/probes                               metrics
/metrics/slis                                 metrics
/run/{ns}/{pod}/{container}                   proxy           POST     debug
/run/{ns}/{pod}/{uid}/{container}             proxy           POST     debug
/exec/{ns}/{pod}/{container}                  proxy           GET POST debug
/exec/{ns}/{pod}/{uid}/{container}            proxy           GET POST debug
/attach/{ns}/{pod}/{container}                proxy           GET POST debug
/attach/{ns}/{pod}/{uid}/{container}          proxy           GET POST debug
/portForward/{ns}/{pod}                       proxy           GET POST debug
/portForward/{ns}/{pod}/{uid}                 proxy           GET POST debug
/containerLogs/{ns}/{pod}/{container}         proxy           GET      debug
/runningpods                                  pods proxy      GET      debug
/runningpods/{$}                              pods proxy      GET      debug
/configz                                      configz proxy            debug
/logs/{path...}                               log             GET      debug
/debug/pprof/{profile...}                     proxy                    debug
/debug/flags/v                                proxy                    debug
/debug/keelson/pods                              proxy           GET      debug
/debug/keelson/pods/{ns}/{pod}               proxy           GET      debug
/checkpoint/{ns}/{pod}/{container}            checkpoint      POST     debug
/statusz                                      statusz                  debug
/flagz                                        configz                  debug
`

// TestRoutesAreInTheTable: exactly the endpoints of the specification are served, with these rights. A new endpoint
// needs a line in it.
func TestRoutesAreInTheTable(t *testing.T) {
	var served []string
	for _, row := range server.Table() {
		words := slices.Concat([]string{row.Pattern}, row.Rights, row.Methods)
		if row.Debug {
			words = append(words, "debug")
		}
		served = append(served, strings.Join(words, " "))
	}
	var wanted []string
	for line := range strings.Lines(strings.TrimSpace(specification)) {
		wanted = append(wanted, strings.Join(strings.Fields(line), " "))
	}
	for _, s := range served {
		if !slices.Contains(wanted, s) {
			t.Errorf("served and not specified: %s", s)
		}
	}
	for _, w := range wanted {
		if !slices.Contains(served, w) {
			t.Errorf("specified and not served: %s", w)
		}
	}
	// All routes are made from the table, except for those of the health port and the local socket.
	want := map[string]int{"routes": 3, "serveHealthz": 2, "LocalHandler": 1}
	if got := routesMade(t); !maps.Equal(got, want) {
		t.Errorf("routes are made in %v, want %v", got, want)
	}
}

// routesMade counts where the package makes routes, by function.
func routesMade(t *testing.T) map[string]int {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range tree.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && (s.Sel.Name == "HandleFunc" || s.Sel.Name == "Handle") {
					out[f.Name.Name]++
				}
				return true
			})
		}
	}
	return out
}

// TestAuthorizationSubresources is the specification: which rights each path needs, tried in this
// order.
func TestAuthorizationSubresources(t *testing.T) {
	parity.Proves(t, "SRV-07", "SRV-08", "SRV-09", "SRV-10", "SRV-11")
	r := newRig(t)
	proxy := []string{"proxy"}
	for path, want := range map[string][]string{
		"/pods":                {"pods", "proxy"},
		"/pods/":               {"pods", "proxy"},
		"/runningpods/":        {"pods", "proxy"},
		"/runningpods":         {"pods", "proxy"},
		"/healthz":             {"healthz", "proxy"},
		"/healthz/ping":        {"healthz", "proxy"},
		"/configz":             {"configz", "proxy"},
		"/stats/summary":       {"stats"},
		"/stats":               {"stats"},
		"/metrics":             {"metrics"},
		"/metrics/cadvisor":    {"metrics"},
		"/metrics/nothing":     {"metrics"},
		"/logs/":               {"log"},
		"/logs/syslog":         {"log"},
		"/checkpoint/a/b/c":    {"checkpoint"},
		"/statusz":             {"statusz"},
		"/flagz":               {"configz"},
		"/metricsfoo":          proxy,
		"/podsfoo":             proxy,
		"/statsd":              proxy,
		"/healthzz":            proxy,
		"/log":                 proxy,
		"/run/a/b/c":           proxy,
		"/exec/a/b/c":          proxy,
		"/attach/a/b/c":        proxy,
		"/portForward/a/b":     proxy,
		"/containerLogs/a/b/c": proxy,
		"/debug/pprof/":        proxy,
		"/":                    proxy,
		"/nothing/here":        proxy,
	} {
		r.api.take()
		got := r.as("none", "GET", path)
		var asked []string
		for _, sub := range want {
			asked = append(asked, "none get "+sub)
		}
		if a := r.api.take(); !slices.Equal(a, asked) {
			t.Errorf("%s: asked for %q, want %q", path, a, asked)
		}
		if want := fmt.Sprintf("Forbidden (user=none, verb=get, resource=nodes, subresource(s)=%v)\n",
			want); got.code != 403 || got.text != want {
			t.Errorf("%s: %d %q, want 403 %q", path, got.code, got.text, want)
		}
	}
	for method, verb := range map[string]string{
		"POST":     "create",
		"PUT":      "update",
		"PATCH":    "patch",
		"DELETE":   "delete",
		"HEAD":     "",
		"OPTIONS":  "",
		"PROPFIND": "",
	} {
		r.api.take()
		if got := r.as("none", method, "/exec/a/b/c"); got.code != 403 {
			t.Errorf("%s: %d, want 403", method, got.code)
		}
		if a := r.api.take(); !slices.Equal(a, []string{"none " + verb + " proxy"}) {
			t.Errorf("%s: asked %q", method, a)
		}
	}
	// The API server of this test grants rights to this node alone, by resource, version and name.
	if got := r.as("may-pods", "GET", "/pods"); got.code != 200 {
		t.Errorf("a user who may get nodes/pods of this node: %d %q, want 200", got.code, got.text)
	}
	const failed = "Authorization error (user=unsure, verb=get, resource=nodes, subresource=pods)"
	if got := r.as("unsure", "GET", "/pods"); got.code != 500 || got.text != failed {
		t.Errorf("a failing review: %d %q, want 500 %q", got.code, got.text, failed)
	}
}

// TestServerAuthorization checks each path and method of the table with each kind of client. A client gets exactly what
// its rights allow.
func TestServerAuthorization(t *testing.T) {
	parity.Proves(t, "SRV-33")
	parity.ProvesPart(t, 4, "SRV-06")
	r := newRig(t)
	foreign := newAuthority(t)
	url := func(path string) string { return "https://" + r.addr[server.Secure] + path }
	admin := r.client(r.ca.issue(t, x509.ExtKeyUsageClientAuth, "admin", "system:masters"))
	narrow := map[string]*http.Client{}
	stranger := r.client(foreign.issue(t, x509.ExtKeyUsageClientAuth, "admin"))
	wrongUse := r.client(r.ca.issue(t, x509.ExtKeyUsageServerAuth, "admin"))
	expired := r.client(r.ca.issueFor(
		t,
		x509.ExtKeyUsageClientAuth,
		time.Now().Add(-time.Hour),
		time.Now().Add(-time.Minute),
		"admin",
	))
	early := r.client(r.ca.issueFor(
		t,
		x509.ExtKeyUsageClientAuth,
		time.Now().Add(time.Minute),
		time.Now().Add(time.Hour),
		"admin",
	))
	bare := r.client()

	rows := server.Table()
	for _, p := range []string{
		"/", "/nothing", "/metricsfoo", "/livez", "/readyz", "/spec/", "/stats/container",
		"/stats/default/web/uid/main",
		"/checkpoint/default/web", "/metrics/nothing",
	} {
		rows = append(rows, server.Served{Pattern: p, Rights: nil})
	}
	for _, row := range rows {
		path := sample(row.Pattern)
		known := row.Rights != nil
		rights := row.Rights
		if !known {
			rights = map[bool][]string{true: {"stats"}, false: {"proxy"}}[strings.HasPrefix(path, "/stats")]
			if strings.HasPrefix(path, "/checkpoint") {
				rights = []string{"checkpoint"}
			}
			if strings.HasPrefix(path, "/metrics/") {
				rights = []string{"metrics"}
			}
		}
		for _, method := range everyMethod {
			name := method + " " + path
			expect := func(who string, got answer, want int) {
				t.Helper()
				if got.code != want {
					t.Errorf("%s as %s: %d %q, want %d", name, who, got.code, got.text, want)
				}
			}
			// The response to an authorized client.
			served := r.ask(admin, method, url(path))
			switch {
			case served.code == 401 || served.code == 403:
				t.Errorf("%s as admin: %d", name, served.code)
			case !known && served.code != 404:
				t.Errorf("%s as admin: %d, want 404", name, served.code)
			case known && row.Methods != nil && !slices.Contains(row.Methods, method):
				expect("admin", served, 405)
			case known && (served.code == 404 || served.code >= 500 && served.text != upgradeRequired):
				t.Errorf("%s as admin: %d %q", name, served.code, served.text)
			}
			for _, right := range rights {
				c := narrow[right]
				if c == nil {
					c = r.client(r.ca.issue(t, x509.ExtKeyUsageClientAuth, "may-"+right))
					narrow[right] = c
				}
				want := served.code
				if !hasVerb(method) {
					want = 403
				}
				expect("may-"+right+" by certificate", r.ask(c, method, url(path)), want)
				expect("may-"+right+" by token",
					r.ask(bare, method, url(path), "Authorization", "Bearer token-may-"+right), want)
			}
			for _, other := range []string{
				"pods", "healthz", "configz", "stats", "metrics", "log", "checkpoint", "statusz", "proxy",
			} {
				if !slices.Contains(rights, other) {
					expect("may-"+other, r.ask(bare, method, url(path), "Authorization", "Bearer token-may-"+other),
						403)
				}
			}
			expect("none", r.ask(bare, method, url(path), "Authorization", "Bearer token-none"), 403)
			for who, got := range map[string]answer{
				"anonymous": r.ask(bare, method, url(path)),
				"bad token": r.ask(bare, method, url(path), "Authorization", "Bearer nonsense"),
				"basic authentication": r.ask(bare, method, url(path),
					"Authorization", "Basic YWRtaW46YWRtaW4="),
				"token that cannot be reviewed":  r.ask(bare, method, url(path), "Authorization", "Bearer token-lost"),
				"foreign certificate":            r.ask(stranger, method, url(path)),
				"certificate for another use":    r.ask(wrongUse, method, url(path)),
				"expired certificate":            r.ask(expired, method, url(path)),
				"certificate of tomorrow":        r.ask(early, method, url(path)),
				"empty token":                    r.ask(bare, method, url(path), "Authorization", "Bearer "),
				"anonymous that is switched off": r.ask(bare, method, url(path), "X-Remote-User", "admin"),
			} {
				expect(who, got, 401)
				if method != "HEAD" && got.text != "Unauthorized" {
					t.Errorf("%s as %s: %q", name, who, got.text)
				}
			}
			// With a certificate of another CA, a valid token is still accepted.
			expect("foreign certificate with a token",
				r.ask(stranger, method, url(path), "Authorization", "Bearer token-admin"), served.code)
		}
	}
}

func TestAnonymous(t *testing.T) {
	parity.ProvesPart(t, 4, "SRV-06")
	r := newRig(t, func(p *parts) { p.authn.Anonymous = true })
	url := "https://" + r.addr[server.Secure] + "/pods"
	if got := r.ask(r.client(), "GET", url); got.code != 403 || !strings.Contains(got.text, "user=system:anonymous") {
		t.Errorf("no credentials: %d %q, want 403 for system:anonymous", got.code, got.text)
	}
	if got := r.ask(r.client(), "GET", url, "Authorization", "Bearer nonsense"); got.code != 401 {
		t.Errorf("a bad token is not anonymous: %d", got.code)
	}
	if got := r.ask(r.client(newAuthority(t).issue(t, x509.ExtKeyUsageClientAuth, "admin")),
		"GET", url); got.code != 401 {
		t.Errorf("a foreign certificate is not anonymous: %d", got.code)
	}
}

// TestServerAuthorizationAnonymous: if anonymous requests are admitted, they have exactly the rights of
// system:anonymous on every endpoint.
func TestServerAuthorizationAnonymous(t *testing.T) {
	rows := server.Table()
	for _, p := range []string{"/", "/nothing", "/metricsfoo"} {
		rows = append(rows, server.Served{Pattern: p, Rights: []string{"proxy"}})
	}
	for _, holds := range []string{
		"", "pods", "healthz", "configz", "stats", "metrics", "log", "checkpoint", "statusz", "proxy",
	} {
		r := newRig(t, func(p *parts) { p.authn.Anonymous = true })
		r.api.anonymous = holds
		bare := r.client()
		for _, row := range rows {
			for _, method := range everyMethod {
				path := sample(row.Pattern)
				want := http.StatusForbidden
				if slices.Contains(row.Rights, holds) && hasVerb(method) {
					want = r.as("admin", method, path).code
				}
				got := r.ask(bare, method, "https://"+r.addr[server.Secure]+path)
				if got.code != want ||
					want == http.StatusForbidden && method != "HEAD" &&
						!strings.Contains(got.text, "user=system:anonymous") {
					t.Errorf("%s %s as anonymous with the right to %q: %d %q, want %d", method, path, holds, got.code,
						got.text, want)
				}
			}
		}
	}
}

// TestReadOnlyPort: endpoints without debugging handlers respond to clients without credentials as to an administrator.
// There are no other endpoints.
func TestReadOnlyPort(t *testing.T) {
	parity.ProvesPart(t, 2, "SRV-02")
	r := newRig(t)
	for _, row := range server.Table() {
		for _, method := range everyMethod {
			path := sample(row.Pattern)
			got := r.ask(http.DefaultClient, method, "http://"+r.addr[server.ReadOnly]+path)
			switch {
			case row.Debug && got.code != http.StatusNotFound && got.code != http.StatusMethodNotAllowed:
				t.Errorf("%s %s is there: %d %q", method, path, got.code, got.text)
			case !row.Debug && got.code != r.as("admin", method, path).code:
				t.Errorf("%s %s: %d %q", method, path, got.code, got.text)
			}
		}
	}
}

func TestDebuggingHandlersDisabled(t *testing.T) {
	parity.Proves(t, "SRV-32")
	parity.ProvesPart(t, 2, "SRV-02")
	r := newRig(t, func(p *parts) { p.server.DebuggingHandlers = false })
	for _, port := range []server.Port{server.Secure, server.ReadOnly} {
		ask := func(path string) answer {
			if port == server.Secure {
				return r.as("admin", "GET", path)
			}
			return r.ask(http.DefaultClient, "GET", "http://"+r.addr[port]+path)
		}
		for _, path := range []string{
			"/run/a/b/c", "/exec/default/web/main", "/attach/a/b/c", "/portForward/a/b",
			"/containerLogs/default/web/main",
			"/runningpods/", "/debug/pprof/", "/debug/pprof/heap", "/logs/",
		} {
			if got := ask(path); got.code != 405 || got.text != "Debug endpoints are disabled.\n" {
				t.Errorf("%s %s: %d %q", port, path, got.code, got.text)
			}
		}
		for _, path := range []string{"/configz", "/debug/flags/v", "/statusz", "/checkpoint/a/b/c"} {
			if got := ask(path); got.code != 404 {
				t.Errorf("%s %s: %d, want 404", port, path, got.code)
			}
		}
		for _, path := range []string{
			"/healthz", "/healthz/syncloop", "/pods", "/stats/summary", "/metrics", "/metrics/cadvisor",
			"/metrics/resource",
			"/metrics/probes", "/metrics/slis",
		} {
			if got := ask(path); got.code != 200 {
				t.Errorf("%s %s: %d, want 200", port, path, got.code)
			}
		}
	}
}

func TestHandlersDisabled(t *testing.T) {
	parity.ProvesPart(t, 3, "SRV-29")
	r := newRig(t, func(p *parts) {
		p.server.ProfilingHandler, p.server.DebugFlagsHandler, p.server.SystemLogHandler = false, false, false
	})
	for path, want := range map[string]string{
		"/debug/pprof/":  "profiling endpoint is disabled.\n",
		"/debug/flags/v": "flags endpoint is disabled.\n",
		"/logs/":         "logs endpoint is disabled.\n",
	} {
		if got := r.as("admin", "GET", path); got.code != 405 || got.text != want {
			t.Errorf("%s: %d %q", path, got.code, got.text)
		}
	}
}

// FuzzPaths looks for a path that authorization and routing interpret differently, so that an endpoint responds to a
// client with the right to another endpoint only.
func FuzzPaths(f *testing.F) {
	for _, row := range server.Table() {
		f.Add("GET", sample(row.Pattern))
	}
	for _, p := range []string{
		"/metrics/../exec/default/web/main", "/metrics/%2e%2e/exec/default/web/main", "/metrics%2f..%2fpods", "//pods",
		"/%70ods", "/healthz/..", "/stats//../pods", "/pods/..;/configz", "/logs/..%2f..%2fetc/passwd", "*",
		"/healthz/%2e%2e/pods", "/./configz",
	} {
		f.Add("GET", p)
		f.Add("POST", p)
	}
	r := &rig{t: f, ca: newAuthority(f), api: &fakeAPI{}, rt: newRuntime(f)}
	held := map[string]http.Handler{}
	for _, right := range []string{"pods", "healthz", "configz", "stats", "metrics", "log", "checkpoint", "statusz"} {
		p := r.config()
		p.server.Registerer, p.server.Metrics = nil, nil
		p.server.Address, p.server.Log = "", slog.New(slog.DiscardHandler)
		p.server.Authenticator = fixedUser("may-" + right)
		var err error
		if p.server.Authorizer, err = newAuthorizer(r.api); err != nil {
			f.Fatal(err)
		}
		s, err := server.New(p.server)
		if err != nil {
			f.Fatal(err)
		}
		held[right] = s.SecureHandler()
	}
	mine := map[string]string{ // what shows that an endpoint has answered
		"pods":    `"PodList"`,
		"configz": "kubeletconfig",
		"stats":   `"nodeName"`,
		"log":     "<pre>",
	}
	f.Fuzz(func(t *testing.T, method, path string) {
		req, err := http.NewRequest(method, "http://node", nil)
		if err != nil {
			return
		}
		if req.URL, err = req.URL.Parse(path); err != nil {
			return
		}
		req.RequestURI = path
		req.RemoteAddr = "127.0.0.1:1"
		for right, h := range held {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, req.Clone(t.Context()))
			if w.Code != http.StatusOK {
				continue
			}
			for owner, sign := range mine {
				if owner != right && strings.Contains(w.Body.String(), sign) {
					t.Errorf("%s %q with the right to %s only: %d %q", method, path, right, w.Code, w.Body)
				}
			}
		}
	})
}

type fixedUser string

func (u fixedUser) Authenticate(*http.Request) (*authnv1.UserInfo, error) {
	return &authnv1.UserInfo{Username: string(u)}, nil
}

// upgradeRequired is the response to a request for a stream without an upgrade. As upstream, its status is 500.
const upgradeRequired = "Upgrade request required\n"

// FuzzRequests sends arbitrary requests with all rights. None may make the server panic or respond with an internal
// error.
func FuzzRequests(f *testing.F) {
	for _, row := range server.Table() {
		for _, query := range []string{
			"", "?timeout=1", "?query=kubelet&tailLines=1", "?tailLines=-1&sinceTime=x&follow=maybe",
			"?command=a&command=b&output=1&tty=1", "?port=1,2&port=", "?only_cpu_and_memory=1", "?verbose&exclude=log",
		} {
			f.Add("GET", sample(row.Pattern)+query, "", "")
			f.Add("POST", sample(row.Pattern)+query, "SPDY/3.1", "4")
		}
	}
	f.Add("GET", "/exec/default/web/main?output=1", "websocket", "")
	r := &rig{t: f, ca: newAuthority(f), api: &fakeAPI{}, rt: newRuntime(f)}
	p := r.config()
	p.server.Registerer, p.server.Metrics = nil, nil
	p.server.Address, p.server.Log = "", slog.New(slog.DiscardHandler)
	p.server.Authenticator, p.server.SystemLogQuery, p.server.SplitLogStreams = fixedUser("admin"), true, true
	var err error
	if p.server.Authorizer, err = newAuthorizer(r.api); err != nil {
		f.Fatal(err)
	}
	s, err := server.New(p.server)
	if err != nil {
		f.Fatal(err)
	}
	h := s.SecureHandler()
	f.Fuzz(func(t *testing.T, method, target, upgrade, body string) {
		req, err := http.NewRequest(method, "http://node", strings.NewReader(body))
		if err != nil {
			return
		}
		if req.URL, err = req.URL.Parse(target); err != nil || strings.Contains(req.URL.Path, "/debug/pprof") ||
			req.URL.Query().Has("follow") {
			return // those take as long as requested
		}
		req.RequestURI, req.RemoteAddr = target, "127.0.0.1:1"
		if upgrade != "" {
			req.Header.Set("Connection", "Upgrade")
			req.Header.Set("Upgrade", upgrade)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		// A refusal of the runtime is passed on verbatim.
		if w.Code == http.StatusInternalServerError && w.Body.String() != upgradeRequired &&
			!strings.Contains(w.Body.String(), "container not found") &&
			!strings.HasPrefix(req.URL.Path, "/checkpoint/") {
			t.Errorf("%s %q: %d %q", method, target, w.Code, w.Body)
		}
	})
}
