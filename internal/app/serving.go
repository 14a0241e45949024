package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/node/server"
	"keelson/internal/node/server/access"
	"keelson/internal/node/server/cert"
	"keelson/internal/pods/explain"
	"keelson/internal/pods/pod"
	"keelson/internal/runtime/logs"
)

func itoa(n uint64) string { return strconv.FormatUint(n, 10) }

// configz is the configuration in force as it is shown.
func (a *agent) configz() any {
	k := a.inForce.Load()
	return a.cfg.Configz(k, string(cgroupDriver(k.CgroupDriver, a.identity)))
}

// buildServer builds the listeners with what they show.
func (a *agent) buildServer(context.Context) error {
	k := &a.cfg.Kubelet
	cfg := server.Config{
		DebuggingHandlers: *k.EnableDebuggingHandlers, ProfilingHandler: *k.EnableProfilingHandler, DebugFlagsHandler: *k.EnableDebugFlagsHandler,
		SystemLogHandler: *k.EnableSystemLogHandler, SystemLogDir: "/var/log", SystemLogQuery: *k.EnableSystemLogQuery, SplitLogStreams: a.cfg.Gates.Enabled("PodLogsQuerySplitStreams"),
		ExtendWebSockets: a.cfg.Gates.Enabled("ExtendWebSocketsToKubelet"), StreamIdleTimeout: k.StreamingConnectionIdleTimeout.Duration,
		Pods: podView{a}, RunningPods: a.runningPods, Logs: podLogs{a}, Streams: streams{a}, Runner: streams{a},
		Checks: a.checks(), KubeletConfig: a.configz, Metrics: a.metrics, Registerer: a.metrics, Log: a.log,
	}
	if *k.EnableDebuggingHandlers && k.EnableContentionProfiling {
		runtime.SetBlockProfileRate(1)
	}
	cfg.About = a.about()
	if a.spans != nil {
		cfg.Trace = a.spans.Request
	}
	if a.links.Operator.Verbosity != nil {
		cfg.SetVerbosity = a.setVerbosity
	}
	probes := prometheus.NewRegistry()
	probes.MustRegister(a.prober, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	cfg.ProbeMetrics = sinceStart{probes}
	cfg.Summary = a.stats.Summary
	cfg.ResourceMetrics, cfg.ContainerMetrics = a.stats.Resource(), a.stats.Containers()
	if a.cfg.Gates.Enabled("ContainerCheckpoint") {
		cfg.Checkpoints = a.checkpoints()
	}
	if *k.HealthzPort > 0 {
		cfg.HealthzAddress = net.JoinHostPort(k.HealthzBindAddress, strconv.Itoa(int(*k.HealthzPort)))
	}
	if k.ReadOnlyPort > 0 {
		cfg.ReadOnlyAddress = net.JoinHostPort(k.Address, strconv.Itoa(int(k.ReadOnlyPort)))
	}
	if *k.EnableServer {
		cfg.Address = net.JoinHostPort(k.Address, strconv.Itoa(int(k.Port)))
		if err := a.secure(&cfg); err != nil {
			return err
		}
	}
	cfg.Explain = explainer{a}
	if a.links.Local == nil {
		cfg.LocalSocket = filepath.Join(a.cfg.Flags.RootDir, explain.Socket)
	}
	var err error
	if a.server, err = server.New(cfg); err != nil {
		return err
	}
	if a.links.Local != nil {
		a.links.Local(a.server.LocalHandler())
	}
	return nil
}

// about is what the server tells of the program.
func (a *agent) about() server.About {
	about := server.About{Started: time.Now(), Version: strings.TrimPrefix(a.cfg.Version, "v"), Release: a.minor(), Status: a.cfg.Gates.Enabled("ComponentStatusz")}
	if a.cfg.Gates.Enabled("ComponentFlagz") {
		about.Flags = a.cfg.CommandLine
	}
	return about
}

// secure fills in who may come in and how the server proves itself.
func (a *agent) secure(cfg *server.Config) error {
	k := &a.cfg.Kubelet
	show, err := a.servingCertificate()
	if err != nil {
		return err
	}
	versions, suites, curves, err := tlsSettings(k)
	if err != nil {
		return err
	}
	cfg.TLS = server.TLS{MinVersion: versions, CipherSuites: suites, CurvePreferences: curves, GetCertificate: show}

	authn := access.AuthenticatorConfig{Anonymous: *k.Authentication.Anonymous.Enabled, TokenTTL: k.Authentication.Webhook.CacheTTL.Duration, Registerer: a.metrics}
	if file := k.Authentication.X509.ClientCAFile; file != "" {
		pool, err := cert.NewPool(file, a.cfg.Gates.Enabled("ReloadKubeletClientCAFile"), a.log)
		if err != nil {
			return err
		}
		cfg.TLS.ClientCAs, authn.ClientCAs = pool.ClientCAs, pool.ClientCAs
	}
	if *k.Authentication.Webhook.Enabled && a.api != nil {
		authn.Tokens = reviews{a.api}
	}
	if cfg.Authenticator, err = access.NewAuthenticator(authn); err != nil {
		return err
	}
	if k.Authorization.Mode == "AlwaysAllow" {
		cfg.Authorizer = access.AlwaysAllow{}
		return nil
	}
	authz := access.AuthorizerConfig{NodeName: a.cfg.NodeName, AllowedTTL: k.Authorization.Webhook.CacheAuthorizedTTL.Duration,
		DeniedTTL: k.Authorization.Webhook.CacheUnauthorizedTTL.Duration, Registerer: a.metrics}
	if a.api != nil {
		authz.Reviews = reviews{a.api}
	}
	cfg.Authorizer, err = access.NewAuthorizer(authz)
	return err
}

// servingCertificate finds what the server proves itself with: a certificate that
// the cluster issues, one from files, or one it makes for itself.
func (a *agent) servingCertificate() (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	k := &a.cfg.Kubelet
	if k.ServerTLSBootstrap && a.api != nil {
		var err error
		if a.ids.serving, err = a.issuedServing(); err != nil {
			return nil, err
		}
		return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return a.ids.serving.Current(), nil }, nil
	}
	certFile, keyFile := k.TLSCertFile, k.TLSPrivateKeyFile
	if certFile == "" && keyFile == "" {
		var err error
		if certFile, keyFile, err = cert.SelfSigned(a.cfg.Flags.CertDir, a.cfg.NodeName, time.Now(), a.unusable, a.log); err != nil {
			return nil, err
		}
	}
	pair, err := cert.NewPair(certFile, keyFile, a.cfg.Gates.Enabled("ReloadKubeletServerCertificateFile"), a.log)
	if err != nil {
		return nil, err
	}
	return pair.GetCertificate, nil
}

// podView shows the pods of the node with their latest status.
type podView struct{ *agent }

func (v podView) Pods() []*v1.Pod {
	var list []*v1.Pod
	for _, d := range v.desired.All() {
		list = append(list, v.withStatus(d.Spec))
	}
	return list
}

func (v podView) Pod(namespace, name string) (*v1.Pod, bool) {
	d, ok := v.desired.ByName(namespace, name)
	if !ok {
		return nil, false
	}
	return v.withStatus(d.Spec), true
}

func (v podView) withStatus(p *v1.Pod) *v1.Pod {
	st, ok := v.statuses.Get(p.UID)
	if !ok {
		return p
	}
	shown := *p
	shown.Status = st
	return &shown
}

// runningPods is what the runtime runs, wanted or not.
func (a *agent) runningPods(context.Context) ([]*v1.Pod, error) {
	var list []*v1.Pod
	for _, uid := range a.observed.UIDs() {
		have, ok := a.observed.Get(uid)
		if !ok || !have.Live() {
			continue
		}
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: have.UID, Name: have.Name, Namespace: have.Namespace}}
		for _, c := range have.Containers {
			if c.State == pod.StateRunning {
				p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: c.Name, Image: c.Image})
			}
		}
		list = append(list, p)
	}
	return list, nil
}

// podLogs reads what containers wrote.
type podLogs struct{ *agent }

func (l podLogs) ReadLogs(ctx context.Context, p *v1.Pod, name, id string, opts *v1.PodLogOptions, stdout, stderr io.Writer) error {
	have, _ := l.observed.Get(p.UID)
	c, ok := have.ByID(id)
	if !ok {
		return fmt.Errorf("container %s (%s) is not there any more", name, id)
	}
	o := logs.Options{Root: l.cfg.Kubelet.PodLogsDir, Follow: opts.Follow, Timestamps: opts.Timestamps, TailLines: opts.TailLines, LimitBytes: opts.LimitBytes}
	o.Opened = func() {
		for _, w := range []io.Writer{stdout, stderr} {
			_, _ = w.Write(nil) // a closed connection is detected when the first line is written
		}
	}
	if opts.Stream != nil && *opts.Stream != v1.LogStreamAll {
		o.Stream = logs.Stream(strings.ToLower(*opts.Stream))
	}
	var since time.Time
	if opts.SinceTime != nil {
		since = opts.SinceTime.Time
	}
	o.Since = logs.Since(opts.SinceSeconds, since, time.Now())
	running := func(context.Context) (bool, error) {
		have, _ := l.observed.Get(p.UID)
		c, ok := have.ByID(id)
		return ok && c.State == pod.StateRunning, nil
	}
	return logs.ReadLogs(ctx, c.LogPath, o, stdout, stderr, running)
}

// streams has the runtime prepare exec, attach and port-forward.
type streams struct{ *agent }

// running is the running instance of a container of the pod.
func (s streams) running(p *v1.Pod, name string) (string, error) {
	have, _ := s.observed.Get(p.UID)
	if c, ok := have.Latest(name); ok && c.State == pod.StateRunning {
		return c.ID, nil
	}
	return "", fmt.Errorf("container not found (%q)", name)
}

func (s streams) Exec(ctx context.Context, p *v1.Pod, name string, cmd []string, o server.StreamOptions) (*url.URL, error) {
	id, err := s.running(p, name)
	if err != nil {
		return nil, err
	}
	resp, err := s.runtime.Exec(ctx, &runtimeapi.ExecRequest{ContainerId: id, Cmd: cmd, Tty: o.TTY, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr})
	if err != nil {
		return nil, err
	}
	return url.Parse(resp.Url)
}

func (s streams) Attach(ctx context.Context, p *v1.Pod, name string, o server.StreamOptions) (*url.URL, error) {
	id, err := s.running(p, name)
	if err != nil {
		return nil, fmt.Errorf("container %s not found in pod %s_%s", name, p.Name, p.Namespace)
	}
	resp, err := s.runtime.Attach(ctx, &runtimeapi.AttachRequest{ContainerId: id, Tty: o.TTY, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr})
	if err != nil {
		return nil, err
	}
	return url.Parse(resp.Url)
}

func (s streams) PortForward(ctx context.Context, p *v1.Pod, ports []int32) (*url.URL, error) {
	have, _ := s.observed.Get(p.UID)
	sandbox, ok := have.ReadySandbox()
	if !ok {
		return nil, fmt.Errorf("pod not found (%q)", p.Name+"_"+p.Namespace)
	}
	resp, err := s.runtime.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: sandbox.ID, Port: ports})
	if err != nil {
		return nil, err
	}
	return url.Parse(resp.Url)
}

// Run runs a command to its end.
func (s streams) Run(ctx context.Context, p *v1.Pod, name string, cmd []string) ([]byte, error) {
	id, err := s.running(p, name)
	if err != nil {
		return nil, err
	}
	resp, err := s.runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: cmd})
	if err != nil {
		return nil, err
	}
	out := append(resp.Stdout, resp.Stderr...)
	if resp.ExitCode != 0 {
		return out, fmt.Errorf("command '%s' exited with %d: %s", strings.Join(cmd, " "), resp.ExitCode, resp.Stderr)
	}
	return out, nil
}
