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

	"keelson/internal/node/checkpoint"
)

// Access is how a node comes to the API server.
type Access struct {
	// Credentials are those to ask for a certificate with: of the kubeconfig, or
	// for the bootstrap.
	Credentials *rest.Config
	// Bootstrap says that the kubeconfig does not serve, because it is not there, or
	// has no client certificate that is good.
	Bootstrap bool
}

// Resolve decides which of two kubeconfig files a node comes with. The one for the
// bootstrap (which may be "") is read only if the other does not serve.
func Resolve(kubeconfig, bootstrap string, now time.Time, log *slog.Logger) (Access, error) {
	own, why := Load(kubeconfig)
	if why == nil {
		why = unfit(own, now)
	}
	if why == nil || bootstrap == "" {
		if own == nil {
			return Access{}, why
		}
		return Access{Credentials: own}, nil
	}
	log.Info("using the bootstrap kubeconfig", "file", bootstrap, "because", why)
	c, err := Load(bootstrap)
	return Access{Credentials: c, Bootstrap: true}, err
}

// Load reads the credentials in a kubeconfig.
func Load(file string) (*rest.Config, error) {
	c, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: file}, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("load kubeconfig %s: %w", file, err)
	}
	return c, nil
}

// unfit says why a kubeconfig does not serve where there is another one for the bootstrap: upstream wants a client
// certificate that is unexpired, with its key, and authorities that can be read; a token does not do.
func unfit(c *rest.Config, now time.Time) error {
	t, err := c.TransportConfig()
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	if _, err := transport.TLSConfigFor(t); err != nil { // reads the files that it names
		return fmt.Errorf("read client certificate: %w", err)
	}
	certs, err := certutil.ParseCertsPEM(t.TLS.CertData)
	if err != nil {
		return fmt.Errorf("read client certificate: %w", err)
	}
	for _, cert := range certs {
		if now.After(cert.NotAfter) {
			return fmt.Errorf("the client certificate of %s expired on %s", cert.Subject.CommonName, cert.NotAfter.UTC().Format(time.RFC3339))
		}
	}
	return nil
}

// WriteKubeconfig writes a kubeconfig that leads to the same cluster as the one for
// the bootstrap, with the certificate of the store.
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
		Clusters:       map[string]*clientcmdapi.Cluster{"default-cluster": cluster},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"default-auth": {ClientCertificate: store.Path(), ClientKey: store.Path()}},
		Contexts:       map[string]*clientcmdapi.Context{"default-context": {Cluster: "default-cluster", AuthInfo: "default-auth", Namespace: "default"}},
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
