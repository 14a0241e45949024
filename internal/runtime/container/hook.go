package container

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/runtime/cri"
)

// hookCall is one run of a lifecycle hook, bounded by its context.
type hookCall struct {
	pod       *v1.Pod
	container *v1.Container
	id        string
	podIPs    []string
	handler   *v1.LifecycleHandler
}

// runHook runs a lifecycle hook and returns when it ends. The error's text appears in the container
// status.
func (r *Runner) runHook(ctx context.Context, h hookCall) error {
	failed := func(kind string, what any, err error) error {
		return fmt.Errorf("%s lifecycle hook (%v) for Container %q in Pod %q failed - error: %w", kind, what,
			h.container.Name, describe(h.pod), err)
	}
	switch {
	case h.handler.Exec != nil:
		cmd := h.handler.Exec.Command
		if output, err := r.execHook(ctx, h.id, cmd); err != nil {
			return fmt.Errorf("%w, message: %q", failed("Exec", cmd, err), output)
		}
	case h.handler.HTTPGet != nil:
		if err := r.httpHook(ctx, h); err != nil {
			return failed("HTTP", h.handler.HTTPGet.Path, err)
		}
	case h.handler.Sleep != nil:
		if err := r.sleepHook(ctx, pod.Seconds(h.handler.Sleep.Seconds)); err != nil {
			return failed("Sleep", h.handler.Sleep.Seconds, err)
		}
	default:
		// The API also has tcpSocket, which was never implemented for hooks.
		err := fmt.Errorf("run lifecycle hook: handler has none of exec, httpGet and sleep: %v", h.handler)
		return pod.ShowAs(fmt.Sprintf("Cannot run handler: invalid handler: %v", h.handler), err)
	}
	return nil
}

// execHook runs a command in the container, bounded by ctx only.
func (r *Runner) execHook(ctx context.Context, id string, cmd []string) (output string, err error) {
	resp, err := r.cfg.Runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: cmd})
	if err != nil {
		return "", cri.Cause(err)
	}
	output = string(resp.GetStdout()) + string(resp.GetStderr())
	if code := resp.GetExitCode(); code != 0 {
		return output, fmt.Errorf("command '%s' exited with %d: %s", strings.Join(cmd, " "), code, resp.GetStderr())
	}
	return output, nil
}

// sleepHook returns after d, or with an error when ctx ends first.
func (r *Runner) sleepHook(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		r.metrics.sleepsEndedBefore.Inc()
		return errors.New("container terminated before sleep hook finished")
	}
}

// hookClient returns the HTTP client for hooks. Certificates are not verified: containers are
// identified by their address. Redirects are followed on the same host only, so that a container
// cannot make the agent send requests elsewhere.
func hookClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
			DisableKeepAlives: true,
			Proxy:             nil,
		},
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if req.URL.Hostname() != via[0].URL.Hostname() {
				return http.ErrUseLastResponse
			}
			if len(via) >= 10 {
				return errors.New("stopped after 10 redirects")
			}
			return nil
		},
	}
}

// maxHookAnswer bounds how much of a response body is read and discarded.
const maxHookAnswer = 10 << 10

// httpHook sends the request of an httpGet hook. Any response counts as success. If a server
// addressed over HTTPS answers in plain HTTP, the request is repeated over HTTP.
func (r *Runner) httpHook(ctx context.Context, h hookCall) error {
	req, err := hookRequest(h.handler.HTTPGet, h.container, r.podIPs(h.pod, h.podIPs), "kube-lifecycle/"+r.cfg.Version)
	if err != nil {
		return err
	}
	err = r.call(req.WithContext(ctx))
	if err == nil || !answeredInClear(err) {
		return err
	}
	again := req.Clone(ctx)
	again.URL.Scheme = "http"
	again.Header.Del("Authorization") // credentials are not sent unencrypted
	if r.call(again) != nil {
		return err
	}
	r.metrics.httpFallbacks.Inc()
	r.cfg.Events.Pod(h.pod, "", v1.EventTypeWarning, pod.EventLifecycleHTTPFallback,
		fmt.Sprintf("request to HTTPS lifecycle hook %s got HTTP response, retry with HTTP succeeded", again.URL.Host))
	return nil
}

func (r *Runner) call(req *http.Request) error {
	resp, err := r.hooks.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	// Give the server a chance to complete its response. Whether it does is of no consequence.
	_, _ = io.CopyN(io.Discard, resp.Body, maxHookAnswer)
	return nil
}

// answeredInClear recognises the HTTP client's error for a server that does not use TLS. It has no
// type of its own.
func answeredInClear(err error) bool {
	var u *url.Error
	return errors.As(err, &u) && strings.Contains(u.Error(), "server gave HTTP response to HTTPS client")
}

// hookRequest builds the request of an httpGet hook.
func hookRequest(get *v1.HTTPGetAction, c *v1.Container, podIPs []string, agent string) (*http.Request, error) {
	host := get.Host
	if host == "" {
		if len(podIPs) == 0 {
			return nil, errors.New("the pod has no address yet")
		}
		host = podIPs[0]
	}
	port, err := hookPort(get.Port, c)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(get.Path)
	if err != nil {
		u = &url.URL{Path: get.Path} // not a valid URL: treat it as a path to be escaped
	}
	u.Scheme, u.Host = strings.ToLower(string(get.Scheme)), net.JoinHostPort(host, strconv.Itoa(port))
	if u.Scheme == "" {
		u.Scheme = "http"
	}
	req, err := http.NewRequest(http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	for _, f := range get.HTTPHeaders {
		req.Header.Add(f.Name, f.Value)
	}
	req.Host = req.Header.Get("Host") // if empty, the host of the URL is used
	switch accept := req.Header.Values("Accept"); {
	case len(accept) == 0:
		req.Header.Set("Accept", "*/*")
	case accept[0] == "":
		req.Header.Del("Accept")
	}
	if len(req.Header.Values("User-Agent")) == 0 {
		req.Header.Set("User-Agent", agent)
	}
	return req, nil
}

// hookPort resolves a port number or the name of a container port.
func hookPort(p intstr.IntOrString, c *v1.Container) (int, error) {
	if p.Type == intstr.Int {
		if p.IntVal <= 0 || p.IntVal > 65535 {
			return 0, fmt.Errorf("invalid port number: %v", p.IntVal)
		}
		return int(p.IntVal), nil
	}
	for _, port := range c.Ports {
		if port.Name == p.StrVal && port.ContainerPort > 0 && port.ContainerPort <= 65535 {
			return int(port.ContainerPort), nil
		}
	}
	n, err := strconv.Atoi(p.StrVal)
	if err == nil && (n <= 0 || n > 65535) {
		err = fmt.Errorf("invalid port number: %v", n)
	}
	return n, err
}
