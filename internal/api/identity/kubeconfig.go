package identity

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/transport"
	certutil "k8s.io/client-go/util/cert"

	"keelson/internal/host/checkpoint"
)

// Access are the credentials of a node.
type Access struct {
	// Credentials are used to request a certificate: those of the kubeconfig, or the bootstrap credentials.
	Credentials *rest.Config
	// Bootstrap is set if the kubeconfig does not exist or has no valid client certificate.
	Bootstrap bool
}

// Resolve selects one of two kubeconfig files. The bootstrap file (which may be "") is read only if the other one
// cannot be used.
func Resolve(kubeconfig, bootstrap string, now time.Time, log *slog.Logger) (Access, error) {
	own, why := Load(kubeconfig)
	if why == nil {
		why = whyUnusable(own, now)
	}
	if why == nil || bootstrap == "" {
		if own == nil {
			return Access{}, why
		}
		return Access{Credentials: own}, nil
	}
	log.Info("using bootstrap kubeconfig", "file", bootstrap, "reason", why)
	c, err := Load(bootstrap)
	return Access{Credentials: c, Bootstrap: true}, err
}

// Load reads the credentials of a kubeconfig.
func Load(file string) (*rest.Config, error) {
	c, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: file}, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("load kubeconfig %s: %w", file, err)
	}
	return c, nil
}

// whyUnusable returns why a kubeconfig cannot be used if there is a bootstrap kubeconfig. As upstream, it needs an
// unexpired client certificate with a key, and readable CAs. A token is not enough.
func whyUnusable(c *rest.Config, now time.Time) error {
	t, err := c.TransportConfig()
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	if _, err := transport.TLSConfigFor(t); err != nil { // reads the referenced files
		return fmt.Errorf("read client certificate: %w", err)
	}
	certs, err := certutil.ParseCertsPEM(t.TLS.CertData)
	if err != nil {
		return fmt.Errorf("read client certificate: %w", err)
	}
	for _, cert := range certs {
		if now.After(cert.NotAfter) {
			return fmt.Errorf("the client certificate of %s expired on %s",
				cert.Subject.CommonName, cert.NotAfter.UTC().Format(time.RFC3339))
		}
	}
	return nil
}

// WriteKubeconfig writes a kubeconfig for the cluster of the bootstrap kubeconfig, with the certificate of the store.
func WriteKubeconfig(file, bootstrap string, store *Store) error {
	from, err := clientcmd.LoadFromFile(bootstrap)
	if err != nil {
		return fmt.Errorf("load kubeconfig %s: %w", bootstrap, err)
	}
	if err := clientcmd.ResolveLocalPaths(from); err != nil {
		return fmt.Errorf("load kubeconfig %s: %w", bootstrap, err)
	}
	context, ok := from.Contexts[from.CurrentContext]
	if !ok || from.Clusters[context.Cluster] == nil {
		return fmt.Errorf("load kubeconfig %s: its current context %q names no cluster", bootstrap, from.CurrentContext)
	}
	cluster := from.Clusters[context.Cluster].DeepCopy()
	cluster.LocationOfOrigin, cluster.Extensions = "", nil
	to := clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"default-cluster": cluster},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{
			"default-auth": {ClientCertificate: store.Path(), ClientKey: store.Path()},
		},
		Contexts: map[string]*clientcmdapi.Context{
			"default-context": {Cluster: "default-cluster", AuthInfo: "default-auth", Namespace: "default"},
		},
		CurrentContext: "default-context",
	}
	text, err := clientcmd.Write(to)
	if err != nil {
		return fmt.Errorf("encode kubeconfig: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("make directory of kubeconfig: %w", err)
	}
	return checkpoint.Put(file, text, private)
}
