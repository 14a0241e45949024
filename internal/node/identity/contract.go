package identity

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// Signers of the cluster.
const (
	ClientSigner  = certificatesv1.KubeAPIServerClientKubeletSignerName
	ServingSigner = certificatesv1.KubeletServingSignerName
)

// Names in the certificate directory. A pair's files are <pair>-current.pem, which
// links to <pair>-<UTC time>.pem.
const (
	ClientPair   = "kubelet-client"
	ServerPair   = "kubelet-server"
	TemporaryKey = "kubelet-client.key.tmp"

	currentName = "current"
	updatedName = "updated"
	timeName    = "2006-01-02-15-04-05"
)

// Names of requests: made from the key when it is kept, so that a retry finds the
// request of the try before, and otherwise the API server's choice.
const (
	namedRequest   = "node-csr-"
	unnamedRequest = "csr-"
)

const (
	userPrefix = "system:node:"
	group      = "system:nodes"
)

// How long a request waits to be approved and issued, and the time between tries.
const (
	BootstrapPatience = time.Hour
	requestPatience   = 15 * time.Minute
	retryFirst        = 2 * time.Second
	retryLast         = 32 * time.Second
)

// ClientTemplate is what a node's client certificate says.
func ClientTemplate(node string) *x509.CertificateRequest {
	return &x509.CertificateRequest{Subject: subject(node)}
}

func subject(node string) pkix.Name {
	return pkix.Name{CommonName: userPrefix + node, Organization: []string{group}}
}

// The keys made here are of elliptic curves, which sign and do not encipher.
func usages(signer string) []certificatesv1.KeyUsage {
	use := certificatesv1.UsageClientAuth
	if signer == ServingSigner {
		use = certificatesv1.UsageServerAuth
	}
	return []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, use}
}
