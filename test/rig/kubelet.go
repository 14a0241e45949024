package rig

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

// KubeletConfig describes the kubelet to start.
type KubeletConfig struct {
	Binary string // ours or upstream's
	// Node is the node's name: the rig's name if empty.
	Node string
	// Endpoint of the runtime; the rig's own if empty.
	Endpoint string
	// BootstrapToken, if not empty, is the kubelet's only credential at its first start, instead of the node's
	// certificate.
	BootstrapToken string
	// APIServer is where the kubelet finds the cluster's API server; the cluster's own URL if empty.
	APIServer string
	// Standalone starts the kubelet without an API server even if the rig has a control plane.
	Standalone bool
	// External, if not nil, is used instead of the cluster's API server. Requests to the kubelet's own server are
	// not authorized by it.
	External *ExternalAPI
	Edit     func(*kubeletconfig.KubeletConfiguration)
	Flags    []string
	// Env are further environment variables, as "K=V".
	Env []string
}

// ExternalAPI is an API server that the rig has not started.
type ExternalAPI struct {
	URL    string
	CA     []byte // in PEM; none without TLS
	Client kubernetes.Interface
}

// Kubelet is a kubelet on the rig's node.
type Kubelet struct {
	Node string
	Root string // --root-dir
	// DevicePlugins is the folder in which device plugins register with our agent. Upstream's folder is fixed.
	DevicePlugins string
	PodLogs       string
	Manifests     string // staticPodPath
	ConfigFile    string
	Kubeconfig    string // empty when standalone
	URL           string // of its server
	Healthz       string // of its local health check
	HTTP          *http.Client
	LogFile       string

	rig  *Rig
	cfg  KubeletConfig
	proc *process
}

// StartKubelet starts a kubelet and returns when it is healthy and, in a
// cluster, its node is Ready.
func (r *Rig) StartKubelet(ctx context.Context, cfg KubeletConfig) (*Kubelet, error) {
	k := &Kubelet{
		Node: cfg.Node, Root: filepath.Join(r.Dir, "kubelet"), PodLogs: filepath.Join(r.Dir, "pod-logs"),
		Manifests: filepath.Join(r.Dir, "manifests"), ConfigFile: filepath.Join(r.Dir, "kubelet.yaml"),
		URL:     "https://" + r.NodeIP() + ":10250",
		Healthz: "http://" + r.Loopback() + ":10248/healthz",
		LogFile: filepath.Join(r.Logs, "kubelet.log"),
		rig:     r, cfg: cfg,
	}
	if k.Node == "" {
		k.Node = r.Name
	}
	// If this folder exists, our agent uses it for device plugins instead of the machine's folder.
	k.DevicePlugins = filepath.Join(k.Root, "device-plugins")
	for _, d := range []string{k.Root, k.DevicePlugins, k.PodLogs, k.Manifests} {
		if err := os.MkdirAll(d, 0o750); err != nil {
			return nil, fmt.Errorf("start kubelet: %w", err)
		}
	}
	if err := r.makeCgroup(); err != nil {
		return nil, fmt.Errorf("start kubelet: %w", err)
	}
	if err := k.credentials(); err != nil {
		return nil, fmt.Errorf("start kubelet: %w", err)
	}
	if err := k.configure(); err != nil {
		return nil, fmt.Errorf("configure kubelet: %w", err)
	}
	r.Kubelet = k
	return k, k.Start(ctx)
}

// credentials issues the node's credentials for the API server, and an administrator's for the kubelet's own server.
func (k *Kubelet) credentials() error {
	pki := k.rig.pki
	if api := k.cfg.External; api != nil {
		k.Kubeconfig = pki.path("external-" + k.Node + ".kubeconfig")
		if err := api.kubeconfig(k.Kubeconfig); err != nil {
			return err
		}
	} else if c := k.rig.Cluster; c != nil && k.cfg.BootstrapToken != "" {
		k.Kubeconfig = filepath.Join(k.Root, "kubeconfig")
		if err := pki.tokenKubeconfig(c.URL, k.bootstrap(), k.cfg.BootstrapToken); err != nil {
			return err
		}
	} else if c != nil && !k.cfg.Standalone {
		var err error
		server := c.URL
		if k.cfg.APIServer != "" {
			server = k.cfg.APIServer
		}
		k.Kubeconfig, err = pki.kubeconfig(server, subject{
			file:   "node-" + k.Node,
			name:   "system:node:" + k.Node,
			groups: []string{"system:nodes"},
		})
		if err != nil {
			return err
		}
	}
	if err := pki.issue(subject{
		file:   "kubelet-admin-" + k.Node,
		name:   "admin",
		groups: []string{"system:masters"},
	}); err != nil {
		return err
	}
	if err := pki.issue(subject{
		file:  "kubelet-" + k.Node,
		name:  "system:node:" + k.Node,
		hosts: []string{k.Node, k.rig.NodeIP()},
	}); err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(pki.path("kubelet-admin-"+k.Node+".crt"), pki.path("kubelet-admin-"+k.Node+".key"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AddCert(pki.cert)
	ca, err := os.ReadFile(pki.path("ca.crt"))
	if err != nil {
		return err
	}
	roots.AppendCertsFromPEM(ca)
	k.HTTP = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs:      roots,
		Certificates: []tls.Certificate{pair},
	}}}
	return nil
}

func (k *Kubelet) bootstrap() string { return filepath.Join(k.rig.Dir, "bootstrap.kubeconfig") }

// configure writes the configuration file. All paths are in the rig's folder, addresses are the rig's own, and the
// eviction limits are low enough for a full disk.
func (k *Kubelet) configure() error {
	r, no := k.rig, false
	resolv := filepath.Join(r.Dir, "resolv.conf")
	if err := os.WriteFile(resolv, []byte("nameserver 127.0.0.1\n"), 0o644); err != nil {
		return err
	}
	endpoint := k.cfg.Endpoint
	if endpoint == "" {
		if r.Runtime == nil {
			return errors.New("no runtime: neither started nor named")
		}
		endpoint = r.Runtime.Endpoint()
	}
	c := kubeletconfig.KubeletConfiguration{
		TypeMeta: metav1.TypeMeta{
			APIVersion: "kubelet.config.k8s.io/v1beta1",
			Kind:       "KubeletConfiguration",
		},
		ContainerRuntimeEndpoint: endpoint,
		Address:                  r.NodeIP(),
		Port:                     10250,
		HealthzBindAddress:       r.Loopback(),
		HealthzPort:              ptr(int32(10248)),
		StaticPodPath:            k.Manifests,
		PodLogsDir:               k.PodLogs,
		VolumePluginDir:          filepath.Join(r.Dir, "volume-plugins"),
		ResolverConfig:           &resolv,
		TLSCertFile:              r.pki.path("kubelet-" + k.Node + ".crt"),
		TLSPrivateKeyFile:        r.pki.path("kubelet-" + k.Node + ".key"),
		CgroupDriver:             "cgroupfs",
		CgroupRoot:               r.n.cgroup(),
		FailCgroupV1:             &no,
		FailSwapOn:               &no,
		MakeIPTablesUtilChains:   &no, // upstream does not remove these chains
		ClusterDNS:               []string{clusterDNS},
		ClusterDomain:            "cluster.local",
		MaxPods:                  250,
		RegistryPullQPS:          ptr(int32(0)),
		EventRecordQPS:           ptr(int32(50)),
		EvictionHard: map[string]string{
			"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%",
			"nodefs.inodesFree": "1%", "imagefs.inodesFree": "1%",
		},
		ImageGCHighThresholdPercent: ptr(int32(99)),
		ImageGCLowThresholdPercent:  ptr(int32(98)),
	}
	c.Authentication.Anonymous.Enabled = &no
	c.Authentication.X509.ClientCAFile = r.pki.path("ca.crt")
	if k.Kubeconfig == "" || k.cfg.External != nil {
		c.Authentication.Webhook.Enabled = &no
		c.Authorization.Mode = kubeletconfig.KubeletAuthorizationModeAlwaysAllow
	} else {
		c.Authentication.Webhook.Enabled = ptr(true)
		c.Authorization.Mode = kubeletconfig.KubeletAuthorizationModeWebhook
	}
	if k.cfg.Edit != nil {
		k.cfg.Edit(&c)
	}
	data, err := yaml.Marshal(c)
	if err != nil {
		return err
	}
	return os.WriteFile(k.ConfigFile, data, 0o644)
}

func ptr[T any](v T) *T { return &v }

// Start starts the kubelet again after Stop or Kill9, and returns when it is
// healthy and its node is Ready.
func (k *Kubelet) Start(ctx context.Context) error {
	args := []string{"--config=" + k.ConfigFile, "--root-dir=" + k.Root, "--cert-dir=" + filepath.Join(k.Root, "pki"),
		"--hostname-override=" + k.Node, "--node-ip=" + k.rig.NodeIP(), "--v=2"}
	if k.Kubeconfig != "" {
		args = append(args, "--kubeconfig="+k.Kubeconfig)
	}
	if k.cfg.BootstrapToken != "" {
		args = append(args, "--bootstrap-kubeconfig="+k.bootstrap())
	}
	proc, err := k.rig.start(program{
		name: "kubelet",
		kind: "kubelet",
		path: k.cfg.Binary,
		args: append(args, k.cfg.Flags...),
		env:  k.cfg.Env,
	})
	if err != nil {
		return err
	}
	k.proc = proc
	return k.WaitReady(ctx)
}

// WaitReady returns when the kubelet is healthy and its node is Ready.
func (k *Kubelet) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, errors.New("not ready within 5 min"))
	defer cancel()
	err := k.proc.until(ctx, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.Healthz, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			body, err := io.ReadAll(resp.Body)
			return fmt.Errorf("%s: %s (%v)", resp.Status, body, err)
		}
		return nil
	})
	if err != nil || k.Kubeconfig == "" {
		return err
	}
	if _, err := until(ctx, k.api().CoreV1().Nodes().Watch, k.Node, NodeReady); err != nil {
		return fmt.Errorf("%w\n%s", err, k.proc.lastWords())
	}
	return nil
}

// api is the API server that the kubelet registers its node with.
func (k *Kubelet) api() kubernetes.Interface {
	if k.cfg.External != nil {
		return k.cfg.External.Client
	}
	return k.rig.Cluster.Client
}

// LogEnd returns the end of the kubelet's log.
func (k *Kubelet) LogEnd() string {
	p := process{log: k.LogFile}
	return p.lastWords()
}

// Stop ends the kubelet with SIGTERM. Pods continue to run.
func (k *Kubelet) Stop() { k.proc.stop(30 * time.Second) }

// Kill9 ends the kubelet with SIGKILL. Pods continue to run.
func (k *Kubelet) Kill9() { k.proc.kill() }

// Freeze stops the kubelet's threads without ending it. Thaw resumes them.
func (k *Kubelet) Freeze() { k.proc.signal(unix.SIGSTOP) }

// Thaw undoes Freeze.
func (k *Kubelet) Thaw() { k.proc.signal(unix.SIGCONT) }

// Restart is Stop and Start.
func (k *Kubelet) Restart(ctx context.Context) error {
	k.Stop()
	return k.Start(ctx)
}

// Swap ends this kubelet and starts another binary instead, with the same folders and configuration.
func (k *Kubelet) Swap(ctx context.Context, binary string) error {
	k.Stop()
	k.cfg.Binary = binary
	return k.Start(ctx)
}

// SetFlags sets the additional flags of later starts.
func (k *Kubelet) SetFlags(flags ...string) { k.cfg.Flags = flags }

// Pid is the kubelet's process number.
func (k *Kubelet) Pid() int { return k.proc.Pid }

// Done is closed when the kubelet has ended.
func (k *Kubelet) Done() <-chan struct{} { return k.proc.done }

// Get requests a path from the kubelet's server as an administrator.
func (k *Kubelet) Get(ctx context.Context, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.URL+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := k.HTTP.Do(req)
	if err != nil {
		return "", fmt.Errorf("ask kubelet: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", fmt.Errorf("ask kubelet for %s: %w", path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return string(body), fmt.Errorf("ask kubelet for %s: %s: %s", path, resp.Status, body)
	}
	return string(body), nil
}
