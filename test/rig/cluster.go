package rig

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// ClusterConfig has additional flags for the control plane.
type ClusterConfig struct {
	APIServerFlags         []string
	ControllerManagerFlags []string
}

// Cluster is a control plane of the rig's own.
type Cluster struct {
	URL        string
	Kubeconfig string // of the administrator
	REST       *rest.Config
	Client     kubernetes.Interface

	rig *Rig
	cfg ClusterConfig
	api *process
}

// StartCluster starts etcd, kube-apiserver, kube-controller-manager and
// kube-scheduler, and returns when pods can be created.
func (r *Rig) StartCluster(ctx context.Context, cfg ClusterConfig) (*Cluster, error) {
	c := &Cluster{rig: r, cfg: cfg, URL: "https://" + r.Loopback() + ":6443"}
	if err := c.credentials(); err != nil {
		return nil, fmt.Errorf("start cluster: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Minute, errors.New("no answer within 10 min"))
	defer cancel()
	if err := c.startStore(ctx); err != nil {
		return nil, fmt.Errorf("start cluster: %w", err)
	}
	if err := c.StartAPIServer(ctx); err != nil {
		return nil, fmt.Errorf("start cluster: %w", err)
	}
	if err := c.startControllers(ctx); err != nil {
		return nil, fmt.Errorf("start cluster: %w", err)
	}
	if err := c.untilPodsCanBeMade(ctx); err != nil {
		return nil, fmt.Errorf("start cluster: %w", err)
	}
	r.Cluster = c
	return c, nil
}

// Join makes the rig a further node of another rig's cluster. That rig must be closed later than this one. The
// kubelet of this rig gets its credentials from the other rig.
func (r *Rig) Join(c *Cluster) { r.Cluster, r.pki = c, c.rig.pki }

// credentials issues the certificates of all programs of the control plane.
func (c *Cluster) credentials() error {
	pki, ip := c.rig.pki, c.rig.Loopback()
	if _, err := pki.newKey("sa"); err != nil {
		return err
	}
	err := pki.issue(subject{file: "apiserver", name: "kube-apiserver", hosts: []string{
		"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local",
		"127.0.0.1", ip, "10.96.0.1",
	}})
	if err != nil {
		return err
	}
	err = pki.issue(subject{
		file:   "kubelet-client",
		name:   "apiserver-kubelet-client",
		groups: []string{"system:masters"},
	})
	if err != nil {
		return err
	}
	for _, s := range []subject{
		{file: "controller-manager", name: "system:kube-controller-manager"},
		{file: "scheduler", name: "system:kube-scheduler"},
	} {
		if _, err := pki.kubeconfig(c.URL, s); err != nil {
			return err
		}
	}
	if c.Kubeconfig, err = pki.kubeconfig(c.URL, subject{
		file:   "admin",
		name:   "admin",
		groups: []string{"system:masters"},
	}); err != nil {
		return err
	}
	if c.REST, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
		return err
	}
	c.REST.QPS, c.REST.Burst = 500, 1000 // do not throttle tests
	c.Client, err = kubernetes.NewForConfig(c.REST)
	return err
}

func (c *Cluster) startStore(ctx context.Context) error {
	bin, err := c.rig.parts.Path(ctx, "etcd")
	if err != nil {
		return err
	}
	client, peer := "http://"+c.rig.Loopback()+":2379", "http://"+c.rig.Loopback()+":2380"
	// No wait here: the API server waits for etcd.
	_, err = c.rig.start(program{name: "etcd", kind: "control", path: bin, args: []string{
		"--data-dir", filepath.Join(c.rig.Dir, "etcd"), "--listen-client-urls", client, "--advertise-client-urls",
		client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default=" + peer,
		"--unsafe-no-fsync", "--log-level", "warn",
	}})
	return err
}

// StartAPIServer starts the API server, also after KillAPIServer, and returns when it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	bin, err := c.rig.parts.Path(ctx, "kube-apiserver")
	if err != nil {
		return err
	}
	pki, ip := c.rig.pki, c.rig.Loopback()
	args := []string{
		"--etcd-servers=http://" + ip + ":2379",
		"--bind-address=" + ip, "--advertise-address=" + ip, "--secure-port=6443",
		"--tls-cert-file=" + pki.path("apiserver.crt"), "--tls-private-key-file=" + pki.path("apiserver.key"),
		"--client-ca-file=" + pki.path("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + pki.path("sa.key"), "--service-account-signing-key-file=" + pki.path("sa.key"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction,ServiceAccount",
		"--service-cluster-ip-range=" + serviceCIDR, "--allow-privileged=true", "--runtime-config=api/all=true",
		"--kubelet-client-certificate=" + pki.path("kubelet-client.crt"),
		"--kubelet-client-key=" + pki.path("kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP",
	}
	c.api, err = c.rig.start(program{
		name: "kube-apiserver",
		kind: "control",
		path: bin,
		args: append(args, c.cfg.APIServerFlags...),
	})
	if err != nil {
		return err
	}
	return c.api.until(ctx, func(ctx context.Context) error {
		return c.Client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// KillAPIServer kills the API server. The data in etcd is kept.
func (c *Cluster) KillAPIServer() { c.api.kill() }

func (c *Cluster) startControllers(ctx context.Context) error {
	pki, ip := c.rig.pki, c.rig.Loopback()
	for name, args := range map[string][]string{
		"kube-controller-manager": append([]string{
			"--service-account-private-key-file=" + pki.path("sa.key"), "--root-ca-file=" + pki.path("ca.crt"),
			"--use-service-account-credentials=true",
			"--cluster-signing-cert-file=" + pki.path("ca.crt"), "--cluster-signing-key-file=" + pki.path("ca.key"),
		}, c.cfg.ControllerManagerFlags...),
		"kube-scheduler": nil,
	} {
		bin, err := c.rig.parts.Path(ctx, name)
		if err != nil {
			return err
		}
		kc := pki.path(name[len("kube-"):] + ".kubeconfig")
		args = append(args, "--kubeconfig="+kc, "--authentication-kubeconfig="+kc, "--authorization-kubeconfig="+kc,
			"--leader-elect=false", "--bind-address="+ip)
		if _, err := c.rig.start(program{name: name, kind: "control", path: bin, args: args}); err != nil {
			return err
		}
	}
	return nil
}

// untilPodsCanBeMade waits for two objects that the controller manager makes in the default namespace. Without the
// service account no pod is admitted, and without the ConfigMap of the CA none starts.
func (c *Cluster) untilPodsCanBeMade(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return untilThere(ctx, c.Client.CoreV1().ServiceAccounts("default").Watch, "default")
	})
	g.Go(func() error {
		return untilThere(ctx, c.Client.CoreV1().ConfigMaps("default").Watch, "kube-root-ca.crt")
	})
	return g.Wait()
}

// UntilPod watches a pod until want returns true, and returns the pod.
func (c *Cluster) UntilPod(
	ctx context.Context, namespace, name string, want func(*corev1.Pod) bool,
) (*corev1.Pod, error) {
	return until(ctx, c.Client.CoreV1().Pods(namespace).Watch, name, want)
}

// UntilNode watches a node until want returns true, and returns the node.
func (c *Cluster) UntilNode(ctx context.Context, name string, want func(*corev1.Node) bool) (*corev1.Node, error) {
	return until(ctx, c.Client.CoreV1().Nodes().Watch, name, want)
}

// UntilGone waits until no pod of that name exists.
func (c *Cluster) UntilGone(ctx context.Context, namespace, name string) error {
	pods := c.Client.CoreV1().Pods(namespace)
	_, err := untilEvent(ctx, pods.Watch, name, func(e event[*corev1.Pod]) bool { return e.gone },
		func(ctx context.Context) (bool, error) {
			list, err := pods.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
			return err == nil && len(list.Items) == 0, err
		})
	return err
}

// PodReady returns whether a pod's Ready condition is true.
func PodReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// NodeReady returns whether a node's Ready condition is true.
func NodeReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
