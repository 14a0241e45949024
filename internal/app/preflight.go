package app

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
	"keelson/internal/resources/cgroup"
	"keelson/internal/runtime/cri"
	"keelson/internal/runtime/image/provider"
)

// Preflight looks for what the configuration names and is not there, or cannot be
// read: everything in one pass, before anything is started. What only some pods
// need is left for them to complain about.
func Preflight(cfg *config.Config, host Host) config.Problems {
	p := preflight{cfg: cfg}
	k, f := &cfg.Kubelet, &cfg.Flags
	p.host(k, host)
	if a := &k.Authentication; *k.EnableServer && a.X509.ClientCAFile == "" && !*a.Webhook.Enabled && !*a.Anonymous.Enabled {
		p.bad("authentication", nil, "no authentication method configured: set x509.clientCAFile, or enable webhook or anonymous")
	}
	p.file("authentication.x509.clientCAFile", k.Authentication.X509.ClientCAFile)
	if !k.ServerTLSBootstrap && k.TLSCertFile != "" && k.TLSPrivateKeyFile != "" &&
		p.file("tlsCertFile", k.TLSCertFile) && p.file("tlsPrivateKeyFile", k.TLSPrivateKeyFile) {
		if _, err := tls.LoadX509KeyPair(k.TLSCertFile, k.TLSPrivateKeyFile); err != nil {
			p.bad("tlsCertFile", k.TLSCertFile, "must be a certificate for the key in tlsPrivateKeyFile, %s: %v", k.TLSPrivateKeyFile, err)
		}
	}
	switch {
	case f.Kubeconfig == "":
	case f.BootstrapKubeconfig == "":
		p.kubeconfig("--kubeconfig", f.Kubeconfig)
	case !there(f.Kubeconfig):
		p.kubeconfig("--bootstrap-kubeconfig", f.BootstrapKubeconfig)
	}
	config, programs := p.file("--image-credential-provider-config", f.ImageCredentialProviderConfig), p.file("--image-credential-provider-bin-dir", f.ImageCredentialProviderBinDir)
	if config && programs {
		p.plugins()
	}
	p.socket("containerRuntimeEndpoint", k.ContainerRuntimeEndpoint)
	p.socket("imageServiceEndpoint", k.ImageServiceEndpoint)
	return p.problems
}

// Host is what the configuration must suit of the machine.
type Host struct {
	Swap     []string // what the machine swaps to
	CgroupV1 bool
	Untuned  []string // settings of the kernel that pods are promised otherwise
}

// ThisHost is the machine that the agent is on. What cannot be read is left for the
// parts that need it to complain about.
func ThisHost() Host {
	var h Host
	if text, err := os.ReadFile("/proc/swaps"); err == nil {
		h.Swap = swapsIn(string(text))
	}
	if groups, err := cgroup.Detect(); err == nil {
		h.CgroupV1 = !groups.V2()
	}
	h.Untuned = untuned("/proc/sys")
	return h
}

// swapsIn names the files and devices in a table like /proc/swaps, whose first line
// is its head.
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

// host checks what only some machines can do.
func (p *preflight) host(k *v1beta1.KubeletConfiguration, h Host) {
	if *k.FailSwapOn && len(h.Swap) > 0 {
		p.bad("failSwapOn", true, "must be false on a machine that swaps (to %s): running with swap on is not supported, please disable swap or set failSwapOn to false", strings.Join(h.Swap, ", "))
	}
	if k.ProtectKernelDefaults && len(h.Untuned) > 0 {
		p.bad("protectKernelDefaults", true, "must be false, or the kernel be set up beforehand: %s", strings.Join(h.Untuned, ", "))
	}
	if !h.CgroupV1 {
		return
	}
	if *k.FailCgroupV1 {
		p.bad("failCgroupV1", true, "must be false on a machine with cgroup v1: kubelet is configured to not run on a host using cgroup v1. cgroup v1 support is unsupported and will be removed in a future release")
	}
	if k.MemorySwap.SwapBehavior == "LimitedSwap" {
		p.bad("memorySwap.swapBehavior", k.MemorySwap.SwapBehavior, "must be NoSwap on a machine with cgroup v1: swap feature requires cgroup v2")
	}
	if k.SingleProcessOOMKill != nil && !*k.SingleProcessOOMKill {
		p.bad("singleProcessOOMKill", false, "must be true or unset on a machine with cgroup v1")
	}
}

type preflight struct {
	cfg      *config.Config
	problems config.Problems
}

func (p *preflight) bad(field string, value any, format string, args ...any) {
	origin := ""
	if !strings.HasPrefix(field, "--") {
		origin = p.cfg.Origins.Of(field)
	}
	p.problems = append(p.problems, config.Problem{Origin: origin, Field: field, Value: value, Why: fmt.Sprintf(format, args...)})
}

// file checks that a file or directory, if one is named, is there and can be read.
func (p *preflight) file(field, path string) bool {
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

// kubeconfig checks that a file names an API server. Whether the server takes what
// else is in it is found out by asking.
func (p *preflight) kubeconfig(field, path string) {
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
		p.bad(field, path, "must be a kubeconfig that says the server of the cluster %q, which its context %q names", chosen.Cluster, c.CurrentContext)
	}
}

// plugins checks that the plugins for image credentials are described as they must be
// and there.
func (p *preflight) plugins() {
	f := &p.cfg.Flags
	_, err := provider.New(provider.Config{Path: f.ImageCredentialProviderConfig, BinDir: f.ImageCredentialProviderBinDir,
		AllowTokens: p.cfg.Gates.Enabled("KubeletServiceAccountTokenForCredentialProviders"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		p.bad("--image-credential-provider-config", f.ImageCredentialProviderConfig, "must describe plugins that are in %s: %v", f.ImageCredentialProviderBinDir, err)
	}
}

// socket checks that an endpoint is written as one. Whether somebody listens there
// is found out by asking: a runtime that is not up yet is waited for.
func (p *preflight) socket(field, endpoint string) {
	if endpoint == "" {
		return
	}
	path, err := cri.SocketPath(endpoint)
	if err != nil {
		p.bad(field, endpoint, "must be the socket of a container runtime: %v", err)
		return
	}
	if i, err := os.Stat(path); err == nil && i.Mode()&fs.ModeSocket == 0 {
		p.bad(field, endpoint, "must be the socket of a container runtime, and %s is none", path)
	}
}

func there(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
