//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	deviceapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"keelson/test/kit/deviceplugin"
	"keelson/test/kit/parity"
)

const gadget = "example.com/gadget"

// gadgets requests devices for the first container.
func gadgets(n string) spec {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{gadget: quantity(n)}
	}
}

// nodeHas waits until the node has these numbers of allocatable devices and of all devices.
func (s *space) nodeHas(resource corev1.ResourceName, want string) {
	s.t.Helper()
	s.until(want+" of "+string(resource), func() (string, bool) {
		o := s.nodeObject()
		there, well := o.Status.Capacity[resource], o.Status.Allocatable[resource]
		got := well.String() + "/" + there.String()
		return got, got == want
	})
}

// TestDevicePlugins gives pods devices of a plugin with a real runtime, and ends the
// agent and the plugin while the pods run.
func TestDevicePlugins(t *testing.T) {
	parity.Differs(t, "RES-52", "0145")
	n := shared(t)
	s := n.namespace(t)
	shared := t.TempDir()
	if err := os.WriteFile(filepath.Join(shared, "f"), []byte("driver"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := deviceplugin.New(deviceplugin.Config{Dir: n.Kubelet.DevicePlugins, Socket: "gadget.sock", Resource: gadget,
		PreStart: true,
		Answer: func(ids []string) *deviceapi.ContainerAllocateResponse {
			a := deviceplugin.Usual(ids)
			a.Mounts = []*deviceapi.Mount{{ContainerPath: "/driver", HostPath: shared, ReadOnly: true}}
			return a
		}}, "one", "two")
	register := func(want string) {
		t.Helper()
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		if err := p.Register(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.nodeHas(gadget, want)
	}
	t.Cleanup(p.Stop)
	register("2/2")

	out := s.says(s.demo("env", []string{"env"}, gadgets("1")))
	if !slices.Contains(strings.Split(out, "\n"), "DEVICE_one=one") {
		t.Errorf("its environment is %s", out)
	}
	s.create(s.demo("kept", []string{"serve"}, gadgets("1")))
	kept := s.ready("kept")
	looks := func() {
		t.Helper()
		if got := s.kubectlDo("exec", "kept", "--", "/demo", "cat", "/driver/f"); got != "driver" {
			t.Errorf("it reads %q", got)
		}
		if got := s.kubectlDo("exec", "kept", "--", "/demo", "cat", "/dev/one"); got != "" { // the machine's /dev/null
			t.Errorf("it reads %q of its device", got)
		}
		if now := s.ready("kept"); containerID(now, "main") != containerID(kept, "main") {
			t.Error("its container is another one")
		}
	}
	looks()
	conn, err := grpc.NewClient("unix://"+filepath.Join(n.Kubelet.Root, "pod-resources/kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	held := func() (got []string) {
		t.Helper()
		list, err := podresources.NewPodResourcesListerClient(conn).List(t.Context(),
			&podresources.ListPodResourcesRequest{}, grpc.WaitForReady(true))
		if err != nil {
			t.Fatal(err)
		}
		for _, of := range list.PodResources {
			for _, c := range of.Containers {
				for _, d := range c.Devices {
					got = append(got, of.Name+"/"+c.Name+" "+d.ResourceName+" "+strings.Join(d.DeviceIds, ","))
				}
			}
		}
		return got
	}
	holds := func(want ...string) {
		t.Helper()
		s.until(fmt.Sprintf("pods to hold %q", want), func() (string, bool) {
			got := held()
			return fmt.Sprintf("%q", got), slices.Equal(got, want)
		})
	}
	holds("kept/main " + gadget + " one") // not the one that has ended

	// The agent is killed: the plugin is unknown until it registers again, and the pod keeps its devices.
	n.Kubelet.Kill9()
	if err := n.Kubelet.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.nodeHas(gadget, "0/0")
	looks()
	holds("kept/main " + gadget + " one")
	s.create(s.demo("early", []string{"serve"}, gadgets("1"), func(p *corev1.Pod) { p.Spec.NodeName = n.Kubelet.Node }))
	waits := func(name string) {
		t.Helper()
		s.pod(name, "wait for the plugin", func(p *corev1.Pod) bool {
			if len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].State.Waiting == nil {
				return false
			}
			w := p.Status.ContainerStatuses[0].State.Waiting
			return w.Reason == "DevicePluginNotRegistered" &&
				strings.HasPrefix(w.Message, "waiting for the device plugin of "+gadget+" to register")
		})
	}
	waits("early")
	s.delete("early", 0)
	s.gone("early")
	// A pod that the scheduler has to bind waits until the plugin is back.
	s.create(s.demo("patient", []string{"serve"}, gadgets("1")))
	p.Stop()
	register("2/2")
	s.ready("patient")
	holds("kept/main "+gadget+" one", "patient/main "+gadget+" two")
	s.delete("patient", 0)
	s.gone("patient")

	// As after a reboot of the machine: the runtime has nothing of the pod, and the plugin is late.
	n.Kubelet.Stop()
	sandboxes, err := n.Runtime.CRI.ListPodSandbox(
		t.Context(),
		&cri.ListPodSandboxRequest{
			Filter: &cri.PodSandboxFilter{LabelSelector: map[string]string{"io.kubernetes.pod.uid": string(kept.UID)}},
		},
	)
	if err != nil || len(sandboxes.Items) != 1 {
		t.Fatalf("sandboxes %v, %v", sandboxes, err)
	}
	id := sandboxes.Items[0].Id
	if _, err := n.Runtime.CRI.StopPodSandbox(t.Context(), &cri.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Runtime.CRI.RemovePodSandbox(t.Context(),
		&cri.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
		t.Fatal(err)
	}
	p.Stop()
	if err := n.Kubelet.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	waits("kept")
	register("2/2")
	if now := s.ready("kept"); containerID(now, "main") == containerID(kept, "main") {
		t.Error("its container is the same")
	}
	holds("kept/main " + gadget + " one")
	s.delete("kept", 1)
	s.gone("kept")
	s.create(s.demo("after", []string{"serve"}, gadgets("2")))
	s.ready("after")
	holds("after/main "+gadget+" one", "after/main "+gadget+" two")
	for _, name := range []string{"env", "after"} {
		s.delete(name, 0)
		s.gone(name)
	}
	s.until("the devices to be given back",
		func() (string, bool) { got := held(); return strings.Join(got, "\n"), len(got) == 0 })
}
