package identity

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"keelson/internal/api/client"
)

// giveUpAfter is how long the agent runs without a valid client certificate although the API server responds. Then it
// exits, because a restart may find other credentials.
const giveUpAfter = 5 * time.Minute

// ClientConfig is the configuration of the client for the API server and its credentials. Fields are required unless
// their comment says otherwise.
type ClientConfig struct {
	Client              client.Config
	Node                string
	CertDir             string
	Kubeconfig          string
	BootstrapKubeconfig string // optional
	Rotate              bool   // renew the client certificate before it expires
	Unusable            func(error)
	Registry            prometheus.Registerer
	Log                 *slog.Logger
}

// NewClient makes a client for the API server with the configured credentials. The Rotator renews its certificate; it
// is nil if the certificate is not renewed.
func NewClient(ctx context.Context, c ClientConfig) (*client.Client, *Rotator, error) {
	if !c.Rotate && c.BootstrapKubeconfig == "" {
		api, err := client.New(c.Client)
		return api, nil, err
	}
	store, err := NewStore(StoreConfig{Dir: c.CertDir, Pair: ClientPair, Log: c.Log, OnCorrupt: c.Unusable})
	if err != nil {
		return nil, nil, err
	}
	access, err := Resolve(c.Kubeconfig, c.BootstrapKubeconfig, time.Now(), c.Log)
	if err != nil {
		return nil, nil, err
	}
	first, err := client.NewFor(access.Credentials, c.Client)
	if err != nil {
		return nil, nil, err
	}
	if c.Rotate {
		return c.rotated(access, first, store)
	}
	if !access.Bootstrap {
		return first, nil, nil
	}
	defer first.CloseConnections()
	err = Bootstrap(ctx, BootstrapConfig{
		Store:    store,
		Requests: first.CertificateSigningRequests,
		Node:     c.Node,
		Timeout:  BootstrapTimeout,
		Log:      c.Log,
	})
	if err != nil {
		return nil, nil, err
	}
	if err := WriteKubeconfig(c.Kubeconfig, c.BootstrapKubeconfig, store); err != nil {
		return nil, nil, err
	}
	api, err := client.New(c.Client)
	return api, nil, err
}

// rotated makes a client whose certificate is renewed before it expires. The initial credentials of the node are used
// only to request it.
func (c ClientConfig) rotated(access Access, first *client.Client, store *Store) (*client.Client, *Rotator, error) {
	shown := NewMetrics(c.Registry)
	var own *client.Client
	begin := &beginner{first: first, cfg: c.Client, log: c.Log}
	if !access.Bootstrap {
		begin.kubeconfig = c.BootstrapKubeconfig
	}
	rc := Config{
		Signer:   ClientSigner,
		Store:    store,
		Log:      c.Log,
		Template: func() *x509.CertificateRequest { return ClientTemplate(c.Node) },
		Requests: func(current *tls.Certificate) Requests {
			if current == nil {
				return begin.client().CertificateSigningRequests
			}
			return own.CertificateSigningRequests
		},
		// Connections were made with the old certificate, which expires soon.
		OnChange: func() {
			own.CloseConnections()
			begin.closeConnections()
		},
		GiveUp: giveUpAfter,
	}
	if c.BootstrapKubeconfig != "" {
		rc.OnRejected = c.Unusable
	}
	if access.Bootstrap {
		if err := WriteKubeconfig(c.Kubeconfig, c.BootstrapKubeconfig, store); err != nil {
			return nil, nil, err
		}
	} else {
		var err error
		if rc.First, err = certificateOf(access.Credentials); err != nil {
			return nil, nil, err
		}
	}
	shown.Watch(&rc)
	rotator, err := New(rc)
	if err != nil {
		return nil, nil, err
	}
	cfg := c.Client
	cfg.Identity = rotator
	if own, err = client.NewFor(access.Credentials, cfg); err != nil {
		return nil, nil, err
	}
	shown.Show(rotator)
	return own, rotator, nil
}

// beginner provides the client that requests the first certificate: with the bootstrap credentials, or with the initial
// ones of the node. The client with the bootstrap credentials is made when it is needed: a node with a valid
// certificate does not need the bootstrap kubeconfig, which installers remove.
type beginner struct {
	first      *client.Client
	kubeconfig string // the bootstrap kubeconfig; empty: first has its credentials, or there is none
	cfg        client.Config
	log        *slog.Logger

	mu   sync.Mutex
	made *client.Client // nil before it is needed
}

func (b *beginner) client() *client.Client {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.made != nil || b.kubeconfig == "" {
		return cmp.Or(b.made, b.first)
	}
	rc, err := Load(b.kubeconfig)
	if err == nil {
		b.made, err = client.NewFor(rc, b.cfg)
	}
	if err != nil {
		b.log.Warn("cannot use the bootstrap kubeconfig", "err", err)
		return b.first
	}
	return b.made
}

// closeConnections closes the connections of both clients. It is called when the certificate changes.
func (b *beginner) closeConnections() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.first.CloseConnections()
	if b.made != nil {
		b.made.CloseConnections()
	}
}

// certificateOf returns the client certificate of a kubeconfig; nil if it has other credentials.
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

// ServingConfig is the configuration of a serving certificate that the cluster issues. Every field is required.
type ServingConfig struct {
	Store     StoreConfig
	Node      string
	Addresses func() []Address // of the node's status
	// DNSNamesOnly lets a node without IP addresses request a certificate.
	DNSNamesOnly bool
	Requests     Requests
	Registry     prometheus.Registerer
	Log          *slog.Logger
}

// Addresses returns the addresses of the node's status.
func Addresses(st v1.NodeStatus) []Address {
	var out []Address
	for _, a := range st.Addresses {
		out = append(out, Address{Kind: string(a.Type), Address: a.Address})
	}
	return out
}

// NewServing makes a Rotator for the serving certificate, which is for the addresses in the node's status.
func NewServing(c ServingConfig) (*Rotator, error) {
	store, err := NewStore(c.Store)
	if err != nil {
		return nil, err
	}
	shown := NewMetrics(c.Registry)
	rc := Config{
		Signer: ServingSigner,
		Store:  store,
		Log:    c.Log,
		Template: func() *x509.CertificateRequest {
			return ServingTemplate(c.Node, c.Addresses(), c.DNSNamesOnly)
		},
		Requests: func(*tls.Certificate) Requests { return c.Requests },
	}
	shown.Watch(&rc)
	r, err := New(rc)
	if err != nil {
		return nil, err
	}
	shown.Show(r)
	return r, nil
}
