package inventory

import (
	"log/slog"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/runtime/cri"
	"keelson/test/kit/fakecri"
)

// node is a fake runtime with what a test has run on it.
type node struct {
	t      *testing.T
	fake   *fakecri.Runtime
	client *cri.Client
}

// onNode runs a test with a fake runtime in virtual time.
func onNode(t *testing.T, f func(t *testing.T, n *node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		fake := fakecri.New(fakecri.Options{})
		defer fake.Close()
		fake.AddImage(fakecri.Image{Name: "app:1"})
		conn, err := fake.Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		f(t, &node{t: t, fake: fake, client: cri.Over(conn, conn, cri.Config{RequestTimeout: 10 * time.Second})})
	})
}

func (n *node) reader() Reader { return Reader{Runtime: n.client, Log: slog.New(slog.DiscardHandler)} }

// sandbox runs the sandbox of a pod; host is the first user ID of its namespace, zero without one.
func (n *node) sandbox(uid string, host uint32) (string, *runtimeapi.PodSandboxConfig) {
	n.t.Helper()
	cfg := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: uid, Namespace: "ns", Uid: uid},
		Labels:   map[string]string{pod.LabelPodUID: uid},
	}
	if host != 0 {
		mapping := []*runtimeapi.IDMapping{{HostId: host, Length: 65536}}
		cfg.Linux = &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{UsernsOptions: &runtimeapi.UserNamespace{
				Mode: runtimeapi.NamespaceMode_POD,
				Uids: mapping,
				Gids: mapping,
			}},
		}}
	}
	made, err := n.client.RunPodSandbox(n.t.Context(), &runtimeapi.RunPodSandboxRequest{Config: cfg})
	if err != nil {
		n.t.Fatal(err)
	}
	return made.GetPodSandboxId(), cfg
}

// container creates a container with CPUs, and starts it if it is to run.
func (n *node) container(sandbox string, cfg *runtimeapi.PodSandboxConfig, name, cpus string, run bool) string {
	n.t.Helper()
	labels := maps.Clone(cfg.Labels)
	labels[pod.LabelContainerName] = name
	made, err := n.client.CreateContainer(n.t.Context(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: sandbox,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: name},
			Image:    &runtimeapi.ImageSpec{Image: "app:1"},
			Labels:   labels,
			Linux: &runtimeapi.LinuxContainerConfig{
				Resources: &runtimeapi.LinuxContainerResources{CpusetCpus: cpus},
			},
		},
		SandboxConfig: cfg,
	})
	if err != nil {
		n.t.Fatal(err)
	}
	if run {
		req := &runtimeapi.StartContainerRequest{ContainerId: made.GetContainerId()}
		if _, err := n.client.StartContainer(n.t.Context(), req); err != nil {
			n.t.Fatal(err)
		}
	}
	return made.GetContainerId()
}

func TestRunningContainersAreListed(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		box, cfg := n.sandbox("u1", 0)
		n.container(box, cfg, "main", "2-3", true)
		n.container(box, cfg, "created", "4", false)
		foreign, none := n.sandbox("", 0)
		n.container(foreign, none, "foreign", "5", true)

		have, err := n.reader().Containers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(have) != 1 || have[0].UID != "u1" || have[0].Name != "main" ||
			have[0].Resources.GetCpusetCpus() != "2-3" {
			t.Errorf("containers are %+v", have)
		}
		pods, err := n.reader().Pods(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(pods) != 1 || !pods["u1"] {
			t.Errorf("pods are %v", pods)
		}
	})
}

// TestFailingRuntimeReturnsError: an incomplete list would free CPUs that containers use.
func TestFailingRuntimeReturnsError(t *testing.T) {
	for _, method := range []string{"ListContainers", "ContainerStatus"} {
		onNode(t, func(t *testing.T, n *node) {
			box, cfg := n.sandbox("u1", 0)
			n.container(box, cfg, "main", "2-3", true)
			n.fake.Inject(fakecri.Fault{Method: method, Code: codes.Internal, Message: "disk full"})
			if have, err := n.reader().Containers(t.Context()); err == nil {
				t.Errorf("%s fails: containers are %+v", method, have)
			}
		})
	}
}

func TestOwners(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		box, cfg := n.sandbox("u1", 0)
		id := n.container(box, cfg, "main", "", false)
		owner := n.reader().Owners(t.Context())
		if uid, name, known := owner(id); uid != "u1" || name != "main" || !known {
			t.Errorf("owner of %s is %s/%s, %v", id, uid, name, known)
		}
		if _, _, known := owner("unknown"); known {
			t.Error("an unknown container has an owner")
		}
	})
}

func TestUserNamespaceOfASandbox(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.sandbox("u1", 131072)
		n.sandbox("u2", 0)
		if first, count, found := n.reader().UserNamespace(t.Context(), "u1"); first != 131072 || count != 65536 ||
			!found {
			t.Errorf("user namespace is %d, %d, %v", first, count, found)
		}
		if _, _, found := n.reader().UserNamespace(t.Context(), "u2"); found {
			t.Error("a pod without a user namespace has one")
		}
		if _, _, found := n.reader().UserNamespace(t.Context(), "u3"); found {
			t.Error("an unknown pod has a user namespace")
		}
	})
}
