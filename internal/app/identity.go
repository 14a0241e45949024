package app

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"keelson/internal/node/apiclient"
	"keelson/internal/node/identity"
)

// hopeless is how long the agent goes on without a client certificate while the API
// server answers. Whoever starts it again may bring other credentials.
const hopeless = 5 * time.Minute

// identities are the certificates that the cluster issues to the node. Each is nil
// if the configuration does not ask for it.
type identities struct {
	client  *identity.Rotator
	serving *identity.Rotator
}

func (i identities) start(g *group) {
	if i.client != nil {
		g.start("client certificate", i.client.Run)
	}
	if i.serving != nil {
		g.start("serving certificate", i.serving.Run)
	}
}

// dialAPI prepares the way to the API server, with the credentials that the
// configuration asks for.
func (a *agent) dialAPI(ctx context.Context, cfg apiclient.Config) (*apiclient.Client, error) {
	k, f := &a.cfg.Kubelet, &a.cfg.Flags
	if a.links.API != nil {
		return apiclient.NewFor(a.links.API, cfg)
	}
	if !k.RotateCertificates && f.BootstrapKubeconfig == "" {
		return apiclient.New(cfg)
	}
	store, err := identity.NewStore(identity.StoreConfig{Dir: f.CertDir, Pair: identity.ClientPair, Log: a.log, Unusable: a.unusable})
	if err != nil {
		return nil, err
	}
	access, err := identity.Resolve(f.Kubeconfig, f.BootstrapKubeconfig, time.Now(), a.log)
	if err != nil {
		return nil, err
	}
	first, err := apiclient.NewFor(access.Credentials, cfg)
	if err != nil {
		return nil, err
	}
	if k.RotateCertificates {
		return a.rotateClient(access, first, store, cfg)
	}
	if !access.Bootstrap {
		return first, nil
	}
	defer first.CloseConnections()
	if err := identity.Bootstrap(ctx, identity.BootstrapConfig{Store: store, Requests: first.CertificateSigningRequests,
		Node: a.cfg.NodeName, Patience: identity.BootstrapPatience, Log: a.log}); err != nil {
		return nil, err
	}
	if err := identity.WriteKubeconfig(f.Kubeconfig, f.BootstrapKubeconfig, store); err != nil {
		return nil, err
	}
	return apiclient.New(cfg)
}

// rotateClient makes a client whose certificate is renewed before it expires. What
// the node comes with is used for nothing but to ask for it.
func (a *agent) rotateClient(access identity.Access, first *apiclient.Client, store *identity.Store, cfg apiclient.Config) (*apiclient.Client, error) {
	f := &a.cfg.Flags
	shown := identity.NewMetrics(a.metrics)
	var own *apiclient.Client
	begin := &beginner{first: first, cfg: cfg, log: a.log}
	if !access.Bootstrap {
		begin.kubeconfig = f.BootstrapKubeconfig
	}
	rc := identity.Config{Signer: identity.ClientSigner, Store: store, Log: a.log,
		Template: func() *x509.CertificateRequest { return identity.ClientTemplate(a.cfg.NodeName) },
		Requests: func(current *tls.Certificate) identity.Requests {
			if current == nil {
				return begin.client().CertificateSigningRequests
			}
			return own.CertificateSigningRequests
		},
		// Connections are the old certificate's, whose time is over soon.
		OnChange: func() { own.CloseConnections(); begin.closeConnections() },
		GiveUp:   hopeless,
	}
	if f.BootstrapKubeconfig != "" {
		rc.OnRefused = a.unusable
	}
	if access.Bootstrap {
		if err := identity.WriteKubeconfig(f.Kubeconfig, f.BootstrapKubeconfig, store); err != nil {
			return nil, err
		}
	} else {
		var err error
		if rc.First, err = certificateOf(access.Credentials); err != nil {
			return nil, err
		}
	}
	shown.Watch(&rc)
	rotator, err := identity.New(rc)
	if err != nil {
		return nil, err
	}
	cfg.Identity = rotator
	if own, err = apiclient.NewFor(access.Credentials, cfg); err != nil {
		return nil, err
	}
	a.ids.client = rotator
	shown.Show(rotator)
	return own, nil
}

// beginner is how a node asks for a certificate that has none to ask with: with the
// credentials for the bootstrap, or with what it came with. A client with the former
// is made when it is needed: a node whose own certificate serves does without the
// file, which installers remove.
type beginner struct {
	first      *apiclient.Client
	kubeconfig string // for the bootstrap; empty: first has its credentials, or there are none
	cfg        apiclient.Config
	log        *slog.Logger

	mu   sync.Mutex
	made *apiclient.Client // nil before it is needed
}

func (b *beginner) client() *apiclient.Client {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.made != nil || b.kubeconfig == "" {
		return cmp.Or(b.made, b.first)
	}
	rc, err := identity.Load(b.kubeconfig)
	if err == nil {
		b.made, err = apiclient.NewFor(rc, b.cfg)
	}
	if err != nil {
		b.log.Warn("cannot use the bootstrap kubeconfig", "err", err)
		return b.first
	}
	return b.made
}

// closeConnections drops what stands once there is a certificate.
func (b *beginner) closeConnections() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.first.CloseConnections()
	if b.made != nil {
		b.made.CloseConnections()
	}
}

// certificateOf is the client certificate that a kubeconfig brings; nil if it
// brings something else.
func certificateOf(rc *rest.Config) (*tls.Certificate, error) {
	rc = rest.CopyConfig(rc)
	if err := rest.LoadTLSFiles(rc); err != nil {
		return nil, fmt.Errorf("read client certificate of the kubeconfig: %w", err)
	}
	if len(rc.CertData) == 0 || len(rc.KeyData) == 0 {
		return nil, nil
	}
	c, err := tls.X509KeyPair(rc.CertData, rc.KeyData)
	if err != nil {
		return nil, fmt.Errorf("read client certificate of the kubeconfig: %w", err)
	}
	return &c, nil
}

// issuedServing has the cluster issue the certificate of the node's server, under
// the addresses in the node's status.
func (a *agent) issuedServing() (*identity.Rotator, error) {
	k, f := &a.cfg.Kubelet, &a.cfg.Flags
	store, err := identity.NewStore(identity.StoreConfig{Dir: f.CertDir, Pair: identity.ServerPair,
		CertFile: k.TLSCertFile, KeyFile: k.TLSPrivateKeyFile, Log: a.log, Unusable: a.unusable})
	if err != nil {
		return nil, err
	}
	shown := identity.NewMetrics(a.metrics)
	namesAlone := a.cfg.Gates.Enabled("AllowDNSOnlyNodeCSR")
	rc := identity.Config{Signer: identity.ServingSigner, Store: store, Log: a.log,
		Template: func() *x509.CertificateRequest {
			var addresses []identity.Address
			for _, n := range a.node.Node().Status.Addresses {
				addresses = append(addresses, identity.Address{Kind: string(n.Type), Address: n.Address})
			}
			return identity.ServingTemplate(a.cfg.NodeName, addresses, namesAlone)
		},
		Requests: func(*tls.Certificate) identity.Requests { return a.api.CertificateSigningRequests },
	}
	shown.Watch(&rc)
	r, err := identity.New(rc)
	if err != nil {
		return nil, err
	}
	shown.Show(r)
	return r, nil
}

// nodeChanged tells those who go by the node object.
func (a *agent) nodeChanged() {
	a.desired.PokeMirrors()
	a.lasting.NodeChanged()
	if a.ids.serving != nil {
		a.ids.serving.Poke() // its addresses may be others
	}
}
