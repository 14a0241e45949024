package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	grpcstatus "google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"keelson/internal/pods/pod"
)

const (
	maxOutput = 10 << 10 // of a command or a response
	tries     = 3        // attempts at a probe that cannot be run
)

// prepare returns the function of a run. It is called with the lock held; the run itself
// uses no shared state.
func (p *Prober) prepare(k *check) func(context.Context) (outcome, string) {
	t := k.target
	ip := ""
	if len(t.ips) > 0 {
		ip = t.ips[0]
	}
	once := p.handler(k.probe, k.settings.timeout, t.pod, t.spec, t.container.ID, ip)
	return func(ctx context.Context) (o outcome, output string) {
		for range tries {
			if o, output = once(ctx); o != errored {
				break
			}
		}
		return o, output
	}
}

func (p *Prober) handler(
	probe *v1.Probe, timeout time.Duration, spec *v1.Pod, c *v1.Container, id, ip string,
) func(context.Context) (outcome, string) {
	switch h := probe.ProbeHandler; {
	case h.Exec != nil:
		command := expandStatic(h.Exec.Command, c.Env)
		return func(ctx context.Context) (outcome, string) { return p.exec(ctx, id, command, timeout) }
	case h.HTTPGet != nil:
		return func(ctx context.Context) (outcome, string) { return p.http(ctx, h.HTTPGet, c, ip, timeout) }
	case h.TCPSocket != nil:
		return func(ctx context.Context) (outcome, string) { return dial(ctx, h.TCPSocket, c, ip, timeout) }
	case h.GRPC != nil:
		return func(ctx context.Context) (outcome, string) { return p.grpc(ctx, h.GRPC, ip, timeout) }
	}
	return func(context.Context) (outcome, string) {
		return errored, fmt.Sprintf("missing probe handler for %s(%s):%s", pod.FullName(spec), spec.UID, c.Name)
	}
}

// expandStatic expands variables with a value in the specification. Variables with valueFrom expand to nothing.
func expandStatic(command []string, env []v1.EnvVar) []string {
	lookup := func(name string) (string, bool) {
		for i := len(env) - 1; i >= 0; i-- {
			if env[i].Name == name {
				return env[i].Value, true
			}
		}
		return "", false
	}
	out := make([]string, len(command))
	for i, s := range command {
		out[i] = pod.Expand(s, lookup)
	}
	return out
}

func (p *Prober) exec(ctx context.Context, id string, command []string, timeout time.Duration) (outcome, string) {
	output, code, timedOut, err := p.cfg.Exec.Exec(ctx, id, command, timeout)
	text := string(output[:min(len(output), maxOutput)])
	switch {
	case err != nil:
		return errored, err.Error()
	case timedOut:
		return failure, fmt.Sprintf("command timed out: %q timed out after %s", strings.Join(command, " "), timeout)
	case code != 0:
		return failure, text
	}
	return success, text
}

// dialer makes the connections of probes. SO_LINGER is one second, so that the connections
// of a thousand probes do not fill the node's table of sockets in TIME_WAIT.
var dialer = &net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
	var failed error
	if err := c.Control(func(fd uintptr) {
		failed = unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 1})
	}); err != nil {
		return err
	}
	return failed
}}

// probeTransport has no keep-alive: a connection ends with its request.
var probeTransport = &http.Transport{
	// A probe does not verify the identity of the server.
	TLSClientConfig:    &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // as documented for probes
	DisableKeepAlives:  true,
	DisableCompression: true,
	Proxy:              nil,
	DialContext:        dialer.DialContext,
	TLSNextProto:       map[string]func(string, *tls.Conn) http.RoundTripper{},
}

func (p *Prober) http(
	ctx context.Context, get *v1.HTTPGetAction, c *v1.Container, ip string, timeout time.Duration,
) (outcome, string) {
	port, err := portOf(get.Port, c)
	if err != nil {
		return errored, err.Error()
	}
	host := get.Host
	if host == "" {
		host = ip
	}
	target := requestURL(get, host, port)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return errored, err.Error()
	}
	setHeaders(req, get.HTTPHeaders, userAgentPrefix+p.cfg.Version)
	// The error of the client's own timeout names the timeout, as upstream's does; that of a request's deadline would not.
	client := &http.Client{Transport: p.web, CheckRedirect: redirects(host), Timeout: timeout}
	resp, err := client.Do(req)
	if err != nil {
		return failure, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxOutput))
	if err != nil {
		return failure, err.Error()
	}
	switch {
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return warning, fmt.Sprintf("Probe terminated redirects, Response body: %s", body)
	case resp.StatusCode >= 200 && resp.StatusCode < 400:
		return success, string(body)
	}
	return failure, fmt.Sprintf("HTTP probe failed with statuscode: %d", resp.StatusCode)
}

func requestURL(get *v1.HTTPGetAction, host string, port int) *url.URL {
	u, err := url.Parse(get.Path)
	if err != nil {
		u = &url.URL{Path: get.Path}
	}
	u.Scheme = strings.ToLower(string(get.Scheme))
	if u.Scheme == "" {
		u.Scheme = "http"
	}
	u.Host = net.JoinHostPort(host, strconv.Itoa(port))
	if !strings.HasPrefix(u.Path, "/") {
		u.Path = "/" + u.Path
	}
	return u
}

func setHeaders(req *http.Request, headers []v1.HTTPHeader, agent string) {
	for _, h := range headers {
		req.Header.Add(h.Name, h.Value)
	}
	req.Host = req.Header.Get("Host") // empty: that of the address
	if _, ok := req.Header["User-Agent"]; !ok {
		req.Header.Set("User-Agent", agent)
	}
	switch accept, ok := req.Header["Accept"]; {
	case !ok:
		req.Header.Set("Accept", "*/*")
	case accept[0] == "":
		req.Header.Del("Accept")
	}
}

// redirects follows redirects to the same host only: the response of another host shows
// nothing about the container.
func redirects(host string) func(*http.Request, []*http.Request) error {
	return func(req *http.Request, via []*http.Request) error {
		if req.URL.Hostname() != host {
			return http.ErrUseLastResponse
		}
		if len(via) >= 10 {
			return errors.New("stopped after 10 redirects")
		}
		return nil
	}
}

func dial(
	ctx context.Context, tcp *v1.TCPSocketAction, c *v1.Container, ip string, timeout time.Duration,
) (outcome, string) {
	port, err := portOf(tcp.Port, c)
	if err != nil {
		return errored, err.Error()
	}
	host := tcp.Host
	if host == "" {
		host = ip
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return failure, err.Error()
	}
	_ = conn.Close() // the connection was made: success
	return success, ""
}

func (p *Prober) grpc(ctx context.Context, g *v1.GRPCAction, ip string, timeout time.Duration) (outcome, string) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	address := net.JoinHostPort(ip, strconv.Itoa(int(g.Port)))
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithUserAgent(userAgentPrefix+p.cfg.Version),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address)
		}))
	if err != nil {
		return errored, err.Error()
	}
	defer conn.Close() //nolint:errcheck // a failed close of a probe's connection changes nothing
	if !connect(ctx, conn) {
		return failure, fmt.Sprintf("timeout: failed to connect service %q within %v: %v", address, timeout, ctx.Err())
	}
	service := ""
	if g.Service != nil {
		service = *g.Service
	}
	resp, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: service})
	switch {
	case grpcstatus.Code(err) == codes.Unimplemented:
		return failure, fmt.Sprintf("error: this server does not implement the grpc health protocol "+
			"(grpc.health.v1.Health): %s", grpcstatus.Convert(err).Message())
	case grpcstatus.Code(err) == codes.DeadlineExceeded:
		return failure, fmt.Sprintf("timeout: health rpc did not complete within %v", timeout)
	case err != nil:
		return failure, "error: health rpc probe failed: " + err.Error()
	case resp.Status != grpc_health_v1.HealthCheckResponse_SERVING:
		return failure, fmt.Sprintf("service unhealthy (responded with %q)", resp.Status)
	}
	return success, "service healthy"
}

// connect waits until the connection is ready, with retries, and reports whether it was
// before ctx ended. A server may begin to listen within the timeout of its probe.
func connect(ctx context.Context, conn *grpc.ClientConn) bool {
	for {
		state := conn.GetState()
		switch state {
		case connectivity.Ready:
			return true
		case connectivity.Idle:
			conn.Connect()
		}
		if !conn.WaitForStateChange(ctx, state) {
			return false
		}
	}
}

func portOf(p intstr.IntOrString, c *v1.Container) (int, error) {
	port := int(p.IntVal)
	if p.Type == intstr.String {
		named := slices.IndexFunc(c.Ports, func(cp v1.ContainerPort) bool { return cp.Name == p.StrVal })
		if named >= 0 {
			port = int(c.Ports[named].ContainerPort)
		} else if n, err := strconv.Atoi(p.StrVal); err == nil {
			port = n
		} else {
			return 0, err
		}
	}
	if port <= 0 || port > 65535 {
		return 0, fmt.Errorf("invalid port number: %v", port)
	}
	return port, nil
}

// report records events about failures, warnings and errors of probes.
func (p *Prober) report(spec *v1.Pod, k *check, o outcome, output string) {
	event := func(reason, message string) {
		p.cfg.Events.Pod(spec, k.target.container.Name, v1.EventTypeWarning, reason, message)
	}
	switch o {
	case failure:
		event(pod.EventUnhealthy, fmt.Sprintf("%s probe failed: %s", k.kind, output))
	case warning:
		event(pod.EventProbeWarning, fmt.Sprintf("%s probe warning: %s", k.kind, output))
	case errored:
		event(pod.EventUnhealthy, fmt.Sprintf("%s probe errored and resulted in unknown state: %s", k.kind, output))
	}
}
