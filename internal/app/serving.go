package app

import (
	"crypto/tls"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"keelson/internal/api/client"
	"keelson/internal/api/identity"
	"keelson/internal/config/reload"
	"keelson/internal/config/settings"
	"keelson/internal/pods/explain"
	"keelson/internal/pods/podsync"
	"keelson/internal/resources/device"
	"keelson/internal/resources/stats"
	"keelson/internal/runtime/container"
	"keelson/internal/serve/podresources"
	"keelson/internal/serve/podsapi"
	"keelson/internal/serve/server"
	"keelson/internal/serve/server/access"
	"keelson/internal/serve/server/backend"
	"keelson/internal/serve/server/cert"
	"keelson/internal/serve/server/loghealth"
)

// serving is what the agent serves to clients and the service manager.
type serving struct {
	server       *server.Server
	certificate  *identity.Rotator // nil: the cluster does not issue the server's certificate
	podsAPI      *podsapi.Server   // nil: the gate is off
	podResources *podresources.Server
	reloader     *reload.Reloader
	checks       server.Checks
}

func newServing(
	g *ground, r *runtimes, s *apiserver, n *nodes, m *managers, c *containers, images *pullers, p *pods,
	figures *stats.Collector,
) (*serving, error) {
	op := &g.links.Operator
	out := &serving{
		podsAPI:      newPodsAPI(g, p),
		podResources: newPodResources(g, m, p),
		reloader: reload.New(reload.Config{
			Start:   &g.cfg.Kubelet,
			Hangup:  op.Hangup,
			Load:    op.Load,
			Verbose: op.Verbosity,
			Images:  images.gc,
			Logs:    c.rotator,
			Service: g.service,
			Log:     g.log,
		}),
		checks: newChecks(g.logHealth, p.syncer, m.devices),
	}
	cfg := out.serverConfig(g, r, c, p, figures)
	if *g.cfg.Kubelet.EnableServer {
		var err error
		if out.certificate, err = secure(&cfg, g, s, n); err != nil {
			return nil, err
		}
	}
	var err error
	if out.server, err = server.New(cfg); err != nil {
		return nil, err
	}
	if g.links.Local != nil {
		g.links.Local(out.server.LocalHandler())
	}
	return out, nil
}

// serverConfig connects the server with the parts that it shows.
func (o *serving) serverConfig(
	g *ground, r *runtimes, c *containers, p *pods, figures *stats.Collector,
) server.Config {
	k := &g.cfg.Kubelet
	probes := prometheus.NewRegistry()
	probes.MustRegister(c.prober, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	streams := backend.Streams{Runtime: r.client, Observed: r.observed}
	cfg := settings.Server(g.cfg)
	cfg.About.Started = time.Now()
	cfg.Checks = o.checks
	cfg.Pods, cfg.RunningPods = backend.Pods{Desired: p.desired, Statuses: p.statuses}, backend.Running(r.observed)
	cfg.Logs = backend.Logs{Root: k.PodLogsDir, Runtime: r.identity.Name, Observed: r.observed}
	cfg.Streams, cfg.Runner = streams, streams
	cfg.Explain = backend.Explainer{
		Node:     g.cfg.NodeName,
		Desired:  p.desired,
		Observed: r.observed,
		Statuses: p.statuses,
		Workers:  p.syncer,
		Log:      g.log,
	}
	cfg.Summary, cfg.ResourceMetrics, cfg.ContainerMetrics = figures.Summary, figures.Resource(), figures.Containers()
	cfg.KubeletConfig = configz(g, r, o.reloader)
	cfg.Metrics, cfg.Registerer, cfg.ProbeMetrics = g.metrics, g.metrics, server.StartTimeOnly{Gatherer: probes}
	cfg.Log = g.log
	if *k.EnableDebuggingHandlers && k.EnableContentionProfiling {
		runtime.SetBlockProfileRate(1)
	}
	if g.spans != nil {
		cfg.Trace = g.spans.Request
	}
	if g.links.Operator.Verbosity != nil {
		cfg.SetVerbosity = o.reloader.SetVerbosity
	}
	if g.Enabled("ContainerCheckpoint") {
		streams.Checkpointer = container.NewCheckpointer(container.CheckpointConfig{
			Runtime: r.client,
			RootDir: g.cfg.Flags.RootDir,
			Disk:    container.DiskSpace,
			Now:     time.Now,
		})
		cfg.Checkpoints = streams
	}
	if g.links.Local == nil {
		cfg.LocalSocket = g.path(explain.Socket)
	}
	return cfg
}

// configz shows the configuration in force.
func configz(g *ground, r *runtimes, l *reload.Reloader) func() any {
	return func() any {
		k := l.InForce()
		return g.cfg.Configz(k, string(settings.CgroupDriver(k, r.identity.CgroupDriver)))
	}
}

// secure adds the authenticated port: its certificate, the authentication and the authorization of clients.
func secure(cfg *server.Config, g *ground, s *apiserver, n *nodes) (*identity.Rotator, error) {
	k := &g.cfg.Kubelet
	show, rotator, err := servingCertificate(g, s, n)
	if err != nil {
		return nil, err
	}
	if cfg.TLS, err = server.ParseTLS(k.TLSMinVersion, k.TLSCipherSuites, k.TLSCurvePreferences); err != nil {
		return nil, err
	}
	cfg.TLS.GetCertificate = show
	authn := settings.Authenticator(g.cfg)
	authn.Registerer = g.metrics
	if file := k.Authentication.X509.ClientCAFile; file != "" {
		pool, err := cert.NewPool(file, g.Enabled("ReloadKubeletClientCAFile"), g.log)
		if err != nil {
			return nil, err
		}
		cfg.TLS.ClientCAs, authn.ClientCAs = pool.ClientCAs, pool.ClientCAs
	}
	if *k.Authentication.Webhook.Enabled && s.client != nil {
		authn.Tokens = client.Reviews{Client: s.client}
	}
	if cfg.Authenticator, err = access.NewAuthenticator(authn); err != nil {
		return nil, err
	}
	authz, ok := settings.Authorizer(g.cfg)
	if !ok {
		cfg.Authorizer = access.AlwaysAllow{}
		return rotator, nil
	}
	authz.Registerer = g.metrics
	if s.client != nil {
		authz.Reviews = client.Reviews{Client: s.client}
	}
	cfg.Authorizer, err = access.NewAuthorizer(authz)
	return rotator, err
}

// getCertificate returns the certificate for a connection; see tls.Config.
type getCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// servingCertificate returns the server's certificate: one that the cluster issues, one from files, or a self-signed
// one.
func servingCertificate(g *ground, s *apiserver, n *nodes) (getCertificate, *identity.Rotator, error) {
	k := &g.cfg.Kubelet
	if k.ServerTLSBootstrap && s.client != nil {
		rotator, err := issuedCertificate(g, s, n)
		if err != nil {
			return nil, nil, err
		}
		return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return rotator.Current(), nil }, rotator, nil
	}
	certFile, keyFile := k.TLSCertFile, k.TLSPrivateKeyFile
	if certFile == "" && keyFile == "" {
		var err error
		certFile, keyFile, err = cert.SelfSigned(g.cfg.Flags.CertDir, g.cfg.NodeName, time.Now(), g.badFiles.Report,
			g.log)
		if err != nil {
			return nil, nil, err
		}
	}
	pair, err := cert.NewPair(certFile, keyFile, g.Enabled("ReloadKubeletServerCertificateFile"), g.log)
	if err != nil {
		return nil, nil, err
	}
	return pair.GetCertificate, nil, nil
}

// issuedCertificate requests a certificate from the cluster, for the addresses in the node's status.
func issuedCertificate(g *ground, s *apiserver, n *nodes) (*identity.Rotator, error) {
	return identity.NewServing(identity.ServingConfig{
		Store: identity.StoreConfig{
			Dir:       g.cfg.Flags.CertDir,
			Pair:      identity.ServerPair,
			CertFile:  g.cfg.Kubelet.TLSCertFile,
			KeyFile:   g.cfg.Kubelet.TLSPrivateKeyFile,
			OnCorrupt: g.badFiles.Report,
			Log:       g.log,
		},
		Node:         g.cfg.NodeName,
		Addresses:    func() []identity.Address { return identity.Addresses(n.status()) },
		DNSNamesOnly: g.Enabled("AllowDNSOnlyNodeCSR"),
		Requests:     s.client.CertificateSigningRequests,
		Registry:     g.metrics,
		Log:          g.log,
	})
}

// newChecks returns the health checks that have names of their own.
func newChecks(log *loghealth.Log, syncer *podsync.Syncer, devices *device.Manager) server.Checks {
	return server.Checks{
		{Name: "log", Check: log.Healthy},
		{Name: "syncloop", Check: syncer.Healthy},
		{Name: device.CheckName, Check: devices.Healthy},
	}
}
