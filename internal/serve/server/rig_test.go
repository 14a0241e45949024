package server_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authnv1 "k8s.io/api/authentication/v1"
	authzv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	utilexec "k8s.io/utils/exec"

	"keelson/internal/serve/server"
	"keelson/internal/serve/server/access"
)

const nodeName = "node-1"

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

var serial = func() func() *big.Int {
	var mu sync.Mutex
	n := int64(0)
	return func() *big.Int { mu.Lock(); defer mu.Unlock(); n++; return big.NewInt(n) }
}()

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key := newKey(t)
	tmpl := &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{CommonName: "test-ca"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &authority{cert, key, pool}
}

func (a *authority) issue(t testing.TB, usage x509.ExtKeyUsage, cn string, orgs ...string) tls.Certificate {
	t.Helper()
	return a.issueFor(t, usage, time.Now().Add(-time.Hour), time.Now().Add(time.Hour), cn, orgs...)
}

func (a *authority) issueFor(
	t testing.TB, usage x509.ExtKeyUsage, from, to time.Time, cn string, orgs ...string,
) tls.Certificate {
	t.Helper()
	key := newKey(t)
	tmpl := &x509.Certificate{
		SerialNumber: serial(),
		Subject:      pkix.Name{CommonName: cn, Organization: orgs},
		NotBefore:    from,
		NotAfter:     to,
		ExtKeyUsage:  []x509.ExtKeyUsage{usage},
		KeyUsage:     x509.KeyUsageDigitalSignature,
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// fakeAPI behaves like an API server with a fixed set of users. The token of user u is token-u. User may-X has every
// verb on the subresource X of the node, and admin has all rights. Access reviews of user unsure and token reviews of
// user lost fail.
type fakeAPI struct {
	mu    sync.Mutex
	asked []string // "user verb subresource", in order
	// anonymous is the subresource that callers without credentials may use.
	anonymous string
}

func (f *fakeAPI) CreateTokenReview(_ context.Context, tr *authnv1.TokenReview) (*authnv1.TokenReview, error) {
	out := &authnv1.TokenReview{}
	switch user, ok := strings.CutPrefix(tr.Spec.Token, "token-"); {
	case !ok:
	case user == "lost":
		return nil, apierrors.NewBadRequest("no such thing as a review")
	default:
		out.Status = authnv1.TokenReviewStatus{Authenticated: true, User: authnv1.UserInfo{Username: user}}
	}
	return out, nil
}

func (f *fakeAPI) CreateSubjectAccessReview(
	_ context.Context, sar *authzv1.SubjectAccessReview,
) (*authzv1.SubjectAccessReview, error) {
	a := sar.Spec.ResourceAttributes
	f.mu.Lock()
	f.asked = append(f.asked, fmt.Sprintf("%s %s %s", sar.Spec.User, a.Verb, a.Subresource))
	f.mu.Unlock()
	if sar.Spec.User == "unsure" {
		return nil, apierrors.NewBadRequest("cannot tell")
	}
	out := &authzv1.SubjectAccessReview{}
	if a.Resource != "nodes" || a.Version != "v1" || a.Group != "" || a.Namespace != "" || a.Name != nodeName {
		return out, nil
	}
	right, narrow := strings.CutPrefix(sar.Spec.User, "may-")
	if sar.Spec.User == "system:anonymous" {
		right, narrow = f.anonymous, f.anonymous != ""
	}
	out.Status.Allowed = sar.Spec.User == "admin" || narrow && a.Verb != "" && right == a.Subresource
	return out, nil
}

func (f *fakeAPI) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.asked
	f.asked = nil
	return a
}

// fakePods is a node with the pods it was given.
type fakePods []*v1.Pod

func (f fakePods) Pods() []*v1.Pod { return f }
func (f fakePods) Pod(ns, name string) (*v1.Pod, bool) {
	for _, p := range f {
		if p.Namespace == ns && p.Name == name {
			return p, true
		}
	}
	return nil, false
}

// fakeLogs writes the requested options, and follows until the client disconnects.
type fakeLogs struct{ left chan struct{} }

func (f fakeLogs) ReadLogs(
	ctx context.Context, p *v1.Pod, container, id string, o *v1.PodLogOptions, stdout, stderr io.Writer,
) error {
	if container == "broken" {
		return errors.New("log file is gone")
	}
	asked := ""
	if b, err := json.Marshal(o); err == nil && o.Stream == nil && !o.Follow && string(b) != "{}" {
		asked = " " + string(b)
	}
	fmt.Fprintf(stdout, "%s/%s %s out%s\n", p.Name, container, id, asked)
	fmt.Fprintf(stderr, "%s err\n", id)
	if o.Follow {
		<-ctx.Done()
		close(f.left)
	}
	return nil
}

// fakeRuntime runs a few programs: cat, false (exit status 3), size (writes the
// terminal size), say (writes its arguments, quoted), wait (until its streams are
// closed). Ports echo.
type fakeRuntime struct {
	srv streaming.Server

	asked chan struct{} // capacity 1: there was a connection

	mu      sync.Mutex
	headers []http.Header // of each connection
}

func (f *fakeRuntime) Exec(ctx context.Context, id string, cmd []string, in io.Reader, out, errw io.WriteCloser,
	tty bool, resize <-chan remotecommand.TerminalSize) error {
	switch cmd[0] {
	case "cat":
		_, err := io.Copy(out, in)
		return err
	case "false":
		fmt.Fprint(errw, "no\n")
		return utilexec.CodeExitError{Err: errors.New("exit status 3"), Code: 3}
	case "size":
		s := <-resize
		fmt.Fprintf(out, "%dx%d tty=%v", s.Width, s.Height, tty)
		return nil
	case "say":
		fmt.Fprintf(out, "%q", cmd[1:])
		return nil
	case "wait":
		<-ctx.Done()
		return nil
	}
	return fmt.Errorf("%s: not found", cmd[0])
}

func (f *fakeRuntime) Attach(
	_ context.Context, id string, in io.Reader, out, _ io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize,
) error {
	fmt.Fprintf(out, "attached to %s\n", id)
	return nil
}

func (f *fakeRuntime) PortForward(_ context.Context, _ string, port int32, stream io.ReadWriteCloser) error {
	fmt.Fprintf(stream, "%d:", port)
	line := make([]byte, 5)
	if _, err := io.ReadFull(stream, line); err != nil {
		return err
	}
	_, err := stream.Write(line)
	return err
}

// fakeStreams gets addresses from the runtime, as the agent does.
type fakeStreams struct{ rt *fakeRuntime }

func address(s string, err error) (*url.URL, error) {
	if err != nil {
		return nil, err
	}
	return url.Parse(s)
}

func (f fakeStreams) Exec(
	_ context.Context, _ *v1.Pod, container string, cmd []string, o server.StreamOptions,
) (*url.URL, error) {
	if container != "main" {
		return nil, fmt.Errorf("container not found (%q)", container)
	}
	resp, err := f.rt.srv.GetExec(&runtimeapi.ExecRequest{
		ContainerId: "id-" + container,
		Cmd:         cmd,
		Tty:         o.TTY,
		Stdin:       o.Stdin,
		Stdout:      o.Stdout,
		Stderr:      o.Stderr,
	})
	return address(resp.GetUrl(), err)
}

func (f fakeStreams) Attach(_ context.Context, _ *v1.Pod, container string, o server.StreamOptions) (*url.URL, error) {
	resp, err := f.rt.srv.GetAttach(&runtimeapi.AttachRequest{
		ContainerId: "id-" + container,
		Tty:         o.TTY,
		Stdin:       o.Stdin,
		Stdout:      o.Stdout,
		Stderr:      o.Stderr,
	})
	return address(resp.GetUrl(), err)
}

func (f fakeStreams) PortForward(_ context.Context, p *v1.Pod, ports []int32) (*url.URL, error) {
	resp, err := f.rt.srv.GetPortForward(&runtimeapi.PortForwardRequest{PodSandboxId: string(p.UID), Port: ports})
	return address(resp.GetUrl(), err)
}

func (f fakeStreams) Run(_ context.Context, p *v1.Pod, container string, cmd []string) ([]byte, error) {
	if container != "main" {
		return nil, fmt.Errorf("container not found (%q)", container)
	}
	return []byte(strings.Join(append([]string{p.Name}, cmd...), "|")), nil
}

func newRuntime(t testing.TB) *fakeRuntime {
	t.Helper()
	rt := &fakeRuntime{asked: make(chan struct{}, 1)}
	hs := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rt.mu.Lock()
		rt.headers = append(rt.headers, r.Header.Clone())
		rt.mu.Unlock()
		select {
		case rt.asked <- struct{}{}:
		default:
		}
		rt.srv.ServeHTTP(w, r)
	}))
	cfg := streaming.DefaultConfig
	cfg.BaseURL = &url.URL{Scheme: "http", Host: hs.Listener.Addr().String(), Path: "/"}
	var err error
	if rt.srv, err = streaming.NewServer(cfg, rt); err != nil {
		t.Fatal(err)
	}
	hs.Start()
	t.Cleanup(hs.Close)
	return rt
}

func webPod() *v1.Pod {
	running := func(name string) v1.ContainerStatus {
		return v1.ContainerStatus{
			Name:        name,
			ContainerID: "containerd://id-" + name,
			State:       v1.ContainerState{Running: &v1.ContainerStateRunning{}},
		}
	}
	return &v1.Pod{
		TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   "default",
			Name:        "web",
			UID:         "uid-web",
			Annotations: map[string]string{"kubernetes.io/config.source": "file"},
		},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main"}, {Name: "broken"}, {Name: "new"}}},
		Status: v1.PodStatus{
			Phase: v1.PodRunning,
			ContainerStatuses: []v1.ContainerStatus{
				running("main"), running("broken"),
				{
					Name:  "new",
					State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}},
				},
			},
		},
	}
}

// rig is a server on loopback ports with fakes of everything that it calls.
type rig struct {
	t       testing.TB
	ca      *authority
	api     *fakeAPI
	rt      *fakeRuntime
	logs    fakeLogs
	reg     *prometheus.Registry
	addr    map[server.Port]string
	stop    func() error
	clients map[string]*http.Client
}

// parts is the configuration that a test may change before the server is built.
type parts struct {
	server server.Config
	authn  access.AuthenticatorConfig
}

func (r *rig) config() parts {
	return parts{
		server: server.Config{
			Listeners: server.Listeners{
				Address:         "127.0.0.1:0",
				ReadOnlyAddress: "127.0.0.1:0",
				HealthzAddress:  "127.0.0.1:0",
			},
			Handlers: server.Handlers{
				DebuggingHandlers: true,
				ProfilingHandler:  true,
				DebugFlagsHandler: true,
				SystemLogHandler:  true,
				SystemLogDir:      r.t.TempDir(),
				ExtendWebSockets:  true,
				StreamIdleTimeout: 4 * time.Hour,
			},
			Checks: []server.Check{{
				Name:  "log",
				Check: func() error { return nil },
			}, {Name: "syncloop", Check: func() error { return nil }}},
			Sources: server.Sources{
				Pods:        fakePods{webPod()},
				RunningPods: func(context.Context) ([]*v1.Pod, error) { return nil, nil },
				Logs:        r.logs,
				Streams:     fakeStreams{r.rt},
				Runner:      fakeStreams{r.rt},
				Checkpoints: fakeCheckpoints{},
				Explain:     fakeExplainer{},
				Summary: func(_ context.Context, only bool) (*statsapi.Summary, error) {
					s := &statsapi.Summary{Node: statsapi.NodeStats{NodeName: nodeName}, Pods: []statsapi.PodStats{}}
					if !only {
						s.Node.Rlimit = &statsapi.RlimitStats{}
					}
					return s, nil
				},
			},
			About: server.About{
				Version: "1.36.3",
				Release: "1.36",
				Status:  true,
				Flags:   map[string]string{"v": "2"},
			},
			KubeletConfig: func() any { return map[string]string{"kind": "KubeletConfiguration"} },
			SetVerbosity:  func(s string) (string, error) { return "verbosity is " + s, nil },
			Gatherers: server.Gatherers{
				Metrics:          r.reg,
				ContainerMetrics: prometheus.NewRegistry(),
				ResourceMetrics:  prometheus.NewRegistry(),
				ProbeMetrics:     prometheus.NewRegistry(),
			},
			Registerer: r.reg,
			Log:        slog.New(slog.NewTextHandler(r.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
		},
		authn: access.AuthenticatorConfig{
			ClientCAs:  func() *x509.CertPool { return r.ca.pool },
			Tokens:     r.api,
			TokenTTL:   2 * time.Minute,
			Registerer: r.reg,
		},
	}
}

func newRig(t testing.TB, change ...func(*parts)) *rig {
	t.Helper()
	r := &rig{
		t:    t,
		ca:   newAuthority(t),
		api:  &fakeAPI{},
		rt:   newRuntime(t),
		reg:  prometheus.NewRegistry(),
		addr: map[server.Port]string{},
		logs: fakeLogs{make(chan struct{})},
	}
	p := r.config()
	serving := r.ca.issue(t, x509.ExtKeyUsageServerAuth, nodeName)
	p.server.TLS = server.TLS{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &serving, nil },
		ClientCAs:      func() *x509.CertPool { return r.ca.pool },
	}
	listening := make(chan struct{}, 3)
	var mu sync.Mutex
	p.server.OnListen = func(port server.Port, a net.Addr) {
		mu.Lock()
		r.addr[port] = a.String()
		mu.Unlock()
		listening <- struct{}{}
	}
	for _, c := range change {
		c(&p)
	}
	var err error
	if p.server.Authenticator == nil {
		if p.server.Authenticator, err = access.NewAuthenticator(p.authn); err != nil {
			t.Fatal(err)
		}
	}
	if p.server.Authorizer == nil {
		if p.server.Authorizer, err = access.NewAuthorizer(access.AuthorizerConfig{
			NodeName:   nodeName,
			Reviews:    r.api,
			Registerer: r.reg,
		}); err != nil {
			t.Fatal(err)
		}
	}
	s, err := server.New(p.server)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	for _, a := range []string{p.server.Address, p.server.ReadOnlyAddress, p.server.HealthzAddress} {
		if a == "" {
			continue
		}
		select {
		case <-listening:
		case err := <-done:
			t.Fatalf("Run ended: %v", err)
		}
	}
	r.stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return r
}

// client returns an HTTP client with connections of its own.
func (r *rig) client(certs ...tls.Certificate) *http.Client {
	tr := &http.Transport{
		ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{
			RootCAs: r.ca.pool,
			// Sent whether or not the server's list of authorities asks for it.
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				if len(certs) == 0 {
					return &tls.Certificate{}, nil
				}
				return &certs[0], nil
			},
		},
	}
	r.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{
		Transport:     tr,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

type answer struct {
	code   int
	text   string
	header http.Header
	proto  string
}

func (r *rig) ask(c *http.Client, method, target string, header ...string) answer {
	r.t.Helper()
	req, err := http.NewRequest(method, target, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer{resp.StatusCode, string(body), resp.Header, resp.Proto}
}

// as sends a request to the authenticated port with a user's token.
func (r *rig) as(user, method, path string) answer {
	r.t.Helper()
	if r.clients == nil {
		r.clients = map[string]*http.Client{"": r.client()}
	}
	return r.ask(r.clients[""], method, "https://"+r.addr[server.Secure]+path, "Authorization", "Bearer token-"+user)
}

// ours lists the goroutines of this module's server that are still running.
func ours() []string {
	buf := make([]byte, 1<<20)
	var out []string
	for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(g, "keelson/internal/serve/server.") && !strings.Contains(g, "testing.tRunner") {
			out = append(out, g)
		}
	}
	return slices.Clip(out)
}

func newAuthorizer(api *fakeAPI) (*access.Authorizer, error) {
	return access.NewAuthorizer(access.AuthorizerConfig{
		NodeName:   nodeName,
		Reviews:    api,
		AllowedTTL: time.Minute,
		DeniedTTL:  time.Minute,
	})
}
