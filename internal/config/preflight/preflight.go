package preflight

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	v1beta1 "k8s.io/kubelet/config/v1beta1"

	"keelson/internal/config"
	"keelson/internal/host/cgroup"
	"keelson/internal/host/setup"
	"keelson/internal/runtime/cri"
	"keelson/internal/runtime/image/provider"
)

// Check finds files and sockets that the configuration names and that do not exist or cannot be
// read, in one pass before anything is started. Files that only some pods need are not checked:
// they are errors of those pods.
func Check(cfg *config.Config, host Host) config.Problems {
	p := checker{cfg: cfg}
	k, f := &cfg.Kubelet, &cfg.Flags
	p.host(k, host)
	a := &k.Authentication
	if *k.EnableServer && a.X509.ClientCAFile == "" && !*a.Webhook.Enabled && !*a.Anonymous.Enabled {
		p.bad("authentication", nil,
			"no authentication method configured: set x509.clientCAFile, or enable webhook or anonymous")
	}
	p.file("authentication.x509.clientCAFile", k.Authentication.X509.ClientCAFile)
	if !k.ServerTLSBootstrap && k.TLSCertFile != "" && k.TLSPrivateKeyFile != "" &&
		p.file("tlsCertFile", k.TLSCertFile) && p.file("tlsPrivateKeyFile", k.TLSPrivateKeyFile) {
		if _, err := tls.LoadX509KeyPair(k.TLSCertFile, k.TLSPrivateKeyFile); err != nil {
			p.bad("tlsCertFile", k.TLSCertFile,
				"must be a certificate for the key in tlsPrivateKeyFile, %s: %v", k.TLSPrivateKeyFile, err)
		}
	}
	switch {
	case f.Kubeconfig == "":
	case f.BootstrapKubeconfig == "":
		p.kubeconfig("--kubeconfig", f.Kubeconfig)
	case !there(f.Kubeconfig):
		p.kubeconfig("--bootstrap-kubeconfig", f.BootstrapKubeconfig)
	}
	hasConfig := p.file("--image-credential-provider-config", f.ImageCredentialProviderConfig)
	hasPrograms := p.file("--image-credential-provider-bin-dir", f.ImageCredentialProviderBinDir)
	if hasConfig && hasPrograms {
		p.plugins()
	}
	p.socket("containerRuntimeEndpoint", k.ContainerRuntimeEndpoint)
	p.socket("imageServiceEndpoint", k.ImageServiceEndpoint)
	return p.problems
}

// Host are the facts about the host that the configuration depends on.
type Host struct {
	Swap     []string // active swap files and devices
	CgroupV1 bool
	Untuned  []string // sysctls whose value is not the one that the kubelet requires
}

// ThisHost reads the facts about the host of the agent. Facts that cannot be read are omitted: the
// packages that need them report the error.
func ThisHost() Host {
	var h Host
	if text, err := os.ReadFile("/proc/swaps"); err == nil {
		h.Swap = swapsIn(string(text))
	}
	if groups, err := cgroup.Detect(); err == nil {
		h.CgroupV1 = !groups.V2()
	}
	h.Untuned = setup.Untuned("/proc/sys")
	return h
}

// swapsIn returns the files and devices in a table like /proc/swaps, whose first line is a
// header.
func swapsIn(table string) []string {
	var out []string
	lines := strings.Split(strings.TrimSpace(table), "\n")
	for _, line := range lines[1:] {
		if fields := strings.Fields(line); len(fields) > 0 {
			out = append(out, fields[0])
		}
	}
	return out
}

// host checks settings that depend on the host.
func (p *checker) host(k *v1beta1.KubeletConfiguration, h Host) {
	if *k.FailSwapOn && len(h.Swap) > 0 {
		p.bad("failSwapOn", true,
			"must be false on a machine that swaps (to %s): running with swap on is not supported, "+
				"please disable swap or set failSwapOn to false", strings.Join(h.Swap, ", "))
	}
	if k.ProtectKernelDefaults && len(h.Untuned) > 0 {
		p.bad("protectKernelDefaults", true,
			"must be false, or the kernel be set up beforehand: %s", strings.Join(h.Untuned, ", "))
	}
	if !h.CgroupV1 {
		return
	}
	if *k.FailCgroupV1 {
		p.bad("failCgroupV1", true,
			"must be false on a machine with cgroup v1: kubelet is configured to not run on a host "+
				"using cgroup v1. cgroup v1 support is unsupported and will be removed in a future release")
	}
	if k.MemorySwap.SwapBehavior == "LimitedSwap" {
		p.bad("memorySwap.swapBehavior", k.MemorySwap.SwapBehavior,
			"must be NoSwap on a machine with cgroup v1: swap feature requires cgroup v2")
	}
	if k.SingleProcessOOMKill != nil && !*k.SingleProcessOOMKill {
		p.bad("singleProcessOOMKill", false, "must be true or unset on a machine with cgroup v1")
	}
}

type checker struct {
	cfg      *config.Config
	problems config.Problems
}

func (p *checker) bad(field string, value any, format string, args ...any) {
	origin := ""
	if !strings.HasPrefix(field, "--") {
		origin = p.cfg.Origins.Of(field)
	}
	p.problems = append(p.problems, config.Problem{
		Origin: origin,
		Field:  field,
		Value:  value,
		Why:    fmt.Sprintf(format, args...),
	})
}

// file checks that a file or directory, if one is named, exists and can be read.
func (p *checker) file(field, path string) bool {
	if path == "" {
		return false
	}
	f, err := os.Open(path)
	switch {
	case err == nil:
		_ = f.Close() // nothing was written
		return true
	case errors.Is(err, fs.ErrNotExist):
		p.bad(field, path, "must be a file that exists")
	case errors.Is(err, fs.ErrPermission):
		p.bad(field, path, "must be a file that user %d may read", os.Geteuid())
	default:
		p.bad(field, path, "must be a file that can be read: %v", err)
	}
	return false
}

// kubeconfig checks that a file names an API server. Its credentials are not checked.
func (p *checker) kubeconfig(field, path string) {
	if !p.file(field, path) {
		return
	}
	c, err := clientcmd.LoadFromFile(path)
	if err != nil {
		p.bad(field, path, "must be a kubeconfig: %v", err)
		return
	}
	chosen := c.Contexts[c.CurrentContext]
	switch {
	case chosen == nil:
		p.bad(field, path, "must be a kubeconfig whose current-context, %q, is one of its contexts", c.CurrentContext)
	case c.Clusters[chosen.Cluster] == nil || c.Clusters[chosen.Cluster].Server == "":
		p.bad(field, path, "must be a kubeconfig with a server for the cluster %q, which its context %q names",
			chosen.Cluster, c.CurrentContext)
	}
}

// plugins checks that the configuration of credential provider plugins is valid and that
// they exist.
func (p *checker) plugins() {
	f := &p.cfg.Flags
	_, err := provider.New(provider.Config{
		Path:        f.ImageCredentialProviderConfig,
		BinDir:      f.ImageCredentialProviderBinDir,
		AllowTokens: p.cfg.Gates.Enabled("KubeletServiceAccountTokenForCredentialProviders"),
		Log:         slog.New(slog.DiscardHandler),
	})
	if err != nil {
		p.bad("--image-credential-provider-config", f.ImageCredentialProviderConfig,
			"must describe plugins that are in %s: %v", f.ImageCredentialProviderBinDir, err)
	}
}

// socket checks the format of an endpoint. The runtime may not run yet: the agent waits
// for it.
func (p *checker) socket(field, endpoint string) {
	if endpoint == "" {
		return
	}
	path, err := cri.SocketPath(endpoint)
	if err != nil {
		p.bad(field, endpoint, "must be the socket of a container runtime: %v", err)
		return
	}
	if i, err := os.Stat(path); err == nil && i.Mode()&fs.ModeSocket == 0 {
		p.bad(field, endpoint, "must be the socket of a container runtime, and %s is not a socket", path)
	}
}

func there(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
