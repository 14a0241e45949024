package suite

// Names and tags of the images that the conformance suite of v1.36.3 uses.
const (
	e2e = "registry.k8s.io/e2e-test-images/"

	agnhost     = e2e + "agnhost:2.63.0"
	agnhostPrev = e2e + "agnhost:2.55"
	busybox     = e2e + "busybox:1.37.0-1"
	busyboxPrev = e2e + "busybox:1.36.1-1"
	nonroot     = e2e + "nonroot:1.5"
	nonewprivs  = e2e + "nonewprivs:1.4"
	ipcUtils    = e2e + "ipc-utils:1.4"
	perl        = e2e + "perl:5.26"
	nginx       = e2e + "nginx:1.15-4"
	nginxNew    = e2e + "nginx:1.27-0"
	dnsTesting  = e2e + "glibc-dns-testing:2.0.0"
)

// packages are the Debian packages with the programs of the userlands.
var packages = []string{
	"libc6", "bash", "hostname", "curl", "bind9-dnsutils", "bind9-host", "netcat-openbsd",
	"iproute2", "iperf", "util-linux", "util-linux-extra", "nginx", "perl-base", "coreutils",
}
