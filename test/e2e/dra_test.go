//go:build e2e

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson/test/kit/dradriver"
	"keelson/test/kit/parity"
)

// TestClaimedDevices checks all steps of claims with the real scheduler and the real
// runtime: they are prepared before the pod's sandbox, once their driver is registered and
// succeeds, given to containers by request, shared by two pods, and unprepared when the last
// of these has ended, before its status is terminal.
func TestClaimedDevices(t *testing.T) {
	t.Parallel()
	parity.Proves(t, "RES-60", "PLUG-29")
	s := shared(t).namespace(t)
	c := s.claims()
	c.claim("one", "r")
	c.template("two", "a", "b")
	c.offered() // before the driver runs: the scheduler does not check that

	s.create(s.demo("first", []string{"serve"}, uses("one")))
	s.event("first", "FailedPrepareDynamicResources",
		"Failed to prepare dynamic resources: prepare dynamic resources: DRA driver "+c.name+" is not registered")
	if p := s.pod("first", "there", func(*corev1.Pod) bool { return true }); p.Status.Phase != corev1.PodPending {
		t.Errorf("without its driver the pod is %s", p.Status.Phase)
	}
	c.driver.Fault("NodePrepareResources", dradriver.Fault{Claim: "no luck"})
	c.serve()
	s.event("first", "FailedPrepareDynamicResources",
		"Failed to prepare dynamic resources: prepare dynamic resources: NodePrepareResources failed for ResourceClaim one: no luck")
	for _, e := range s.events("first") {
		if e.Reason == "FailedCreatePodSandBox" || e.Reason == "Created" {
			t.Errorf("before its claim was prepared: %s %s", e.Reason, e.Message)
		}
	}
	c.driver.Fault("NodePrepareResources", dradriver.Fault{})
	s.ready("first")
	if files, env := c.devicesIn("first"); files != "/dev/one-dev-0 " || env != "CLAIM_dev-0=one " {
		t.Errorf("the first pod has %q, %q", files, env)
	}

	// The second pod shares that claim, and has a claim of its own, of which it uses a part.
	s.create(s.demo("second", []string{"serve"}, usesNew("two", "b"), uses("one")))
	own := *s.ready("second").Status.ResourceClaimStatuses[0].ResourceClaimName
	c.prepared("one", own)
	if files, _ := c.devicesIn("second"); files != "/dev/one-dev-0 /dev/"+own+"-dev-2 " {
		t.Errorf("the second pod has %q", files)
	}
	s.delete("first", 1)
	s.gone("first")
	if c.count("NodeUnprepareResources", "one") > 0 {
		t.Error("a claim was taken back that another pod uses")
	}

	// While a claim cannot be unprepared, the status of the pod is not terminal.
	c.driver.Fault("NodeUnprepareResources", dradriver.Fault{Claim: "not now"})
	s.delete("second", 1)
	s.event("second", "FailedKillPod", "NodeUnprepareResources failed for ResourceClaim one: not now")
	if p := s.pod("second", "there", func(*corev1.Pod) bool { return true }); p.Status.Phase != corev1.PodRunning {
		t.Errorf("with its claims prepared the pod is %s", p.Status.Phase)
	}
	c.driver.Fault("NodeUnprepareResources", dradriver.Fault{})
	s.gone("second")
	c.prepared()

	// The claims of a job's pod are unprepared although it is not deleted.
	s.create(s.demo("job", []string{"echo", "done"}, uses("one"), never))
	s.phase("job", corev1.PodSucceeded)
	if have := c.driver.Prepared(); len(have) > 0 {
		t.Errorf("the pod has ended and these are prepared: %v", have)
	}
}

// TestAgentDiesBetweenPrepareAndAnswer kills the agent while a driver prepares and
// unprepares, and while pods run: no claim is prepared again after an answer, nothing is
// left, and no container is restarted.
func TestAgentDiesBetweenPrepareAndAnswer(t *testing.T) {
	parity.Proves(t, "PLUG-30")
	n := shared(t)
	s := n.namespace(t)
	c := s.claims()
	c.serve()
	c.offered()
	c.claim("one", "r")
	hang := make(chan struct{})
	c.driver.Fault("NodePrepareResources", dradriver.Fault{Hang: hang, Late: true})
	s.create(s.demo("pod", []string{"serve"}, uses("one")))
	called := func(method string) {
		t.Helper()
		s.until("a call of "+method, func() (string, bool) { return "", c.count(method, "one") > 0 })
	}
	called("NodePrepareResources")
	n.Kubelet.Kill9()
	c.driver.Fault("NodePrepareResources", dradriver.Fault{})
	close(hang) // the driver prepares it, and the answer is lost
	c.prepared("one")
	if err := n.Kubelet.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := s.ready("pod")
	prepared := c.count("NodePrepareResources", "one")

	n.Kubelet.Kill9()
	if err := n.Kubelet.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.create(s.demo("other", []string{"serve"}, uses("one")))
	s.ready("other") // the agent runs, and has checked the claim
	if again := c.count("NodePrepareResources", "one"); again != prepared {
		t.Errorf("what is prepared was prepared %d times more", again-prepared)
	}
	if p := s.ready("pod"); containerID(p, "main") != containerID(first, "main") {
		t.Error("the container was restarted")
	}

	hang = make(chan struct{})
	c.driver.Fault("NodeUnprepareResources", dradriver.Fault{Hang: hang, Late: true})
	s.delete("pod", 1)
	s.delete("other", 1)
	called("NodeUnprepareResources")
	n.Kubelet.Kill9()
	c.driver.Fault("NodeUnprepareResources", dradriver.Fault{})
	close(hang)
	if err := n.Kubelet.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.gone("pod")
	s.gone("other")
	c.prepared()
}

// TestSwapKeepsClaims swaps the agent and upstream's under pods with claims: each uses
// the other's state file, and unprepares claims that the other has prepared.
func TestSwapKeepsClaims(t *testing.T) {
	parity.Proves(t, "RES-61")
	n := shared(t)
	peer, err := n.parts.Path(t.Context(), "kubelet")
	if err != nil {
		t.Fatal(err)
	}
	s := n.namespace(t)
	c := s.claims()
	c.serve()
	c.offered()
	c.claim("kept", "r")
	c.claim("passed-0", "r")
	s.create(s.demo("kept", []string{"serve"}, uses("kept")))
	s.create(s.demo("passed-0", []string{"serve"}, uses("passed-0")))
	kept := s.ready("kept")
	s.ready("passed-0")
	for i, binary := range []string{peer, n.ours, peer, n.ours} {
		if err := n.Kubelet.Swap(t.Context(), binary); err != nil {
			t.Fatal(err)
		}
		old, next := "passed-"+string(rune('0'+i)), "passed-"+string(rune('1'+i))
		s.delete(old, 1)
		s.gone(old)
		c.prepared("kept")
		c.claim(next, "r")
		s.create(s.demo(next, []string{"serve"}, uses(next)))
		s.ready(next)
		if files, _ := c.devicesIn(next); !strings.HasPrefix(files, "/dev/"+next+"-dev-") {
			t.Errorf("swap %d: the pod has %q", i+1, files)
		}
		if p := s.ready("kept"); containerID(p, "main") != containerID(kept, "main") {
			t.Errorf("swap %d: the pod's container is another one", i+1)
		}
		content, err := os.ReadFile(filepath.Join(n.Kubelet.Root, "dra_manager_state"))
		if err != nil || !strings.Contains(string(content), string(kept.UID)) {
			t.Errorf("swap %d: the file says %s, %v", i+1, content, err)
		}
	}
	s.delete("kept", 1)
	s.gone("kept")
}

// TestOffersGoWithTheirDriver checks that the ResourceSlices of a driver are deleted some time
// after the driver has stopped, and when the agent starts.
func TestOffersGoWithTheirDriver(t *testing.T) {
	parity.Proves(t, "RES-64", "PLUG-28")
	n := shared(t)
	s := n.namespace(t)
	c := s.claims()
	c.serve()
	offers := func(want bool) {
		t.Helper()
		s.until("the offer of the driver", func() (string, bool) {
			if want {
				c.offer() // an agent that has just begun may still delete it
			}
			_, err := s.Cluster.Client.ResourceV1().ResourceSlices().Get(t.Context(), c.name, metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err):
				return "it is not there", !want
			case err != nil:
				return err.Error(), false
			}
			return "it is there", want
		})
	}
	offers(true)
	c.driver.Stop()
	offers(false)
	c.serve()
	offers(true)
	if err := n.Kubelet.Restart(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	offers(false)
}
