package rig

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// authority issues the certificates of one rig and writes them to a folder.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  crypto.Signer
}

// subject describes a certificate to issue.
type subject struct {
	file   string // without .crt and .key
	name   string
	groups []string
	hosts  []string // names and addresses of a server
}

func newAuthority(dir string) (*authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make certificates: %w", err)
	}
	a := &authority{dir: dir}
	key, err := a.newKey("ca")
	if err != nil {
		return nil, err
	}
	template := certificate(pkix.Name{CommonName: "keelson rig"})
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	a.cert, a.key = template, key
	return a, a.sign("ca", template, key)
}

// issue makes a key and a certificate that is valid for servers and for clients.
func (a *authority) issue(s subject) error {
	key, err := a.newKey(s.file)
	if err != nil {
		return err
	}
	template := certificate(pkix.Name{CommonName: s.name, Organization: s.groups})
	template.KeyUsage = x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, h := range s.hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	return a.sign(s.file, template, key)
}

func certificate(name pkix.Name) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // the system's source of randomness never fails on Linux
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial, Subject: name,
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0),
	}
}

// sign writes <file>.crt. The authority's own certificate is its own parent.
func (a *authority) sign(file string, template *x509.Certificate, key crypto.Signer) error {
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("make certificate %s: %w", file, err)
	}
	return writePEM(a.path(file+".crt"), "CERTIFICATE", der)
}

// newKey writes <file>.key.
func (a *authority) newKey(file string) (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key %s: %w", file, err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("make key %s: %w", file, err)
	}
	return key, writePEM(a.path(file+".key"), "EC PRIVATE KEY", der)
}

func writePEM(path, kind string, der []byte) error {
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", kind, err)
	}
	return nil
}

func (a *authority) path(file string) string { return filepath.Join(a.dir, file) }

// kubeconfig issues a client certificate and writes <file>.kubeconfig with it.
func (a *authority) kubeconfig(server string, s subject) (string, error) {
	if err := a.issue(s); err != nil {
		return "", err
	}
	c := clientcmdapi.NewConfig()
	c.Clusters["rig"] = &clientcmdapi.Cluster{Server: server, CertificateAuthority: a.path("ca.crt")}
	c.AuthInfos["user"] = &clientcmdapi.AuthInfo{
		ClientCertificate: a.path(s.file + ".crt"),
		ClientKey:         a.path(s.file + ".key"),
	}
	c.Contexts["rig"] = &clientcmdapi.Context{Cluster: "rig", AuthInfo: "user"}
	c.CurrentContext = "rig"
	path := a.path(s.file + ".kubeconfig")
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		return "", fmt.Errorf("write %s: %w", path, err)
	}
	return path, nil
}

// tokenKubeconfig writes a kubeconfig whose only credential is a token.
func (a *authority) tokenKubeconfig(server, path, token string) error {
	return writeTokenKubeconfig(
		path,
		&clientcmdapi.Cluster{Server: server, CertificateAuthority: a.path("ca.crt")},
		token,
	)
}

// kubeconfig writes a kubeconfig for the API server. The server ignores the token.
func (e *ExternalAPI) kubeconfig(path string) error {
	return writeTokenKubeconfig(path, &clientcmdapi.Cluster{Server: e.URL, CertificateAuthorityData: e.CA}, "node")
}

func writeTokenKubeconfig(path string, server *clientcmdapi.Cluster, token string) error {
	c := clientcmdapi.NewConfig()
	c.Clusters["rig"] = server
	c.AuthInfos["user"] = &clientcmdapi.AuthInfo{Token: token}
	c.Contexts["rig"] = &clientcmdapi.Context{Cluster: "rig", AuthInfo: "user"}
	c.CurrentContext = "rig"
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
