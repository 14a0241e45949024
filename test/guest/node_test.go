//go:build guest

package guest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"keelson/test/kit/await"
	"keelson/test/kit/fakeapi"
	"keelson/test/parts"
	"keelson/test/rig"
)

const top = "/sys/fs/cgroup"

// machine is shared by all tests: a runtime and an API server.
type machine struct {
	*rig.Rig
	server *fakeapi.Server
	url    string // of the server
	api    kubernetes.Interface
	ours   string
	parts  *parts.Builder
}

var shared *machine

func TestMain(m *testing.M) {
	if os.Getenv(eatEnv) != "" {
		fmt.Println(eat())
		os.Exit(1)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	// Only on the guest does the root cgroup of version 2 have all controllers.
	if have, err := os.ReadFile(filepath.Join(top, "cgroup.controllers")); err != nil ||
		!strings.Contains(string(have), "memory") {
		fmt.Println("the control groups here are not those of version 2: run `make guest`")
		return 0
	}
	end, err := start()
	code := 1
	if err != nil {
		fmt.Println("cannot start what the tests stand on:", err)
	} else {
		code = m.Run()
	}
	return code | end()
}

// start starts the runtime and the API server, and returns the function that ends them.
func start() (end func() int, err error) {
	ctx := context.Background()
	end = func() int { return 0 }
	s := &machine{server: fakeapi.New()}
	s.api = s.server.Client()
	if s.parts, err = parts.New(os.Stderr); err != nil {
		return end, err
	}
	if s.ours, err = rig.OurKubelet(ctx, os.TempDir()); err != nil {
		return end, err
	}
	if s.Rig, err = rig.Open(ctx, rig.Config{
		Purpose: "test",
		Parts:   s.parts,
		Log:     slog.New(slog.NewTextHandler(os.Stdout, nil)),
	}); err != nil {
		return end, err
	}
	end = func() int {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			fmt.Println(err)
			return 1
		}
		return 0
	}
	if _, err = s.StartRuntime(ctx, rig.RuntimeConfig{}); err != nil {
		return end, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return end, err
	}
	srv := &http.Server{Handler: s.server}
	go srv.Serve(l) // ends with the process
	s.url = "http://" + l.Addr().String()
	shared = s
	return end, nil
}

// agent is one test's agent on the shared machine.
type agent struct {
	*machine
	*rig.Kubelet
	t *testing.T
}

// agentWith starts an agent for a test. When the test ends, its pods are deleted and then the agent is stopped.
func agentWith(t *testing.T, binary string, edit func(*config), flags ...string) *agent {
	t.Helper()
	if binary == "" {
		binary = shared.ours
	}
	for _, gone := range []error{
		shared.api.CoreV1().Events("default").DeleteCollection(t.Context(), metav1.DeleteOptions{},
			metav1.ListOptions{}),
		os.Truncate(filepath.Join(shared.Logs, "kubelet.log"), 0),
	} {
		if gone != nil && !errors.Is(gone, fs.ErrNotExist) {
			t.Fatal(gone)
		}
	}
	k, err := shared.StartKubelet(t.Context(), rig.KubeletConfig{
		Binary:   binary,
		Edit:     edit,
		Flags:    flags,
		External: &rig.ExternalAPI{URL: shared.url, Client: shared.api},
	})
	a := &agent{machine: shared, Kubelet: k, t: t}
	if k != nil {
		t.Cleanup(a.end)
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// end deletes the pods and stops the agent.
func (a *agent) end() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if a.t.Failed() {
		a.ShowLogs(a.t)
	}
	// The node is deleted too, so that it is not mistaken for the node of the next agent.
	defer func() {
		a.Stop()
		if err := a.api.CoreV1().Nodes().Delete(ctx, a.Node, metav1.DeleteOptions{}); err != nil {
			a.t.Error(err)
		}
	}()
	now := int64(0)
	if err := a.api.CoreV1().Pods("default").DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now},
		metav1.ListOptions{}); err != nil {
		a.t.Error(err)
	}
	err := await.Poll(ctx, 100*time.Millisecond, func() (string, bool) {
		left, err := filepath.Glob(filepath.Join(top, a.Name, "kubepods", "*", "pod*"))
		more, err2 := filepath.Glob(filepath.Join(top, a.Name, "kubepods", "pod*"))
		left = append(left, more...)
		return fmt.Sprint(left, err, err2), len(left) == 0 && err == nil && err2 == nil
	})
	if err != nil {
		a.t.Errorf("cgroups of pods that are gone: %v", err)
	}
}

// until waits until so returns true.
func (a *agent) until(what string, so func() (string, bool)) {
	a.t.Helper()
	await.Within(a.t, patience, 100*time.Millisecond, what, so)
}

const patience = 90 * time.Second

// node waits until wanted returns true for the node.
func (a *agent) node(what string, wanted func(*corev1.Node) bool) *corev1.Node {
	a.t.Helper()
	var n *corev1.Node
	a.until("node "+what, func() (string, bool) {
		n = a.server.Node(a.Node)
		return fmt.Sprint(n), n != nil && wanted(n)
	})
	return n
}

// pod waits until wanted returns true for a pod.
func (a *agent) pod(name, what string, wanted func(*corev1.Pod) bool) *corev1.Pod {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), patience)
	defer cancel()
	p, err := a.server.WaitPod(ctx, "default", name, func(p *corev1.Pod) bool { return p != nil && wanted(p) })
	if err != nil {
		a.t.Fatalf("wait for pod %s to be %s: %v\n%v", name, what, err, a.server.Pod("default", name))
	}
	return p
}

func (a *agent) ready(name string) *corev1.Pod {
	a.t.Helper()
	return a.pod(name, "ready", rig.PodReady)
}

// events lists all events.
func (a *agent) events() []corev1.Event {
	a.t.Helper()
	list, err := a.api.CoreV1().Events("").List(a.t.Context(), metav1.ListOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	return list.Items
}

// event waits for an event of that reason whose message contains the words.
func (a *agent) event(reason, words string) corev1.Event {
	a.t.Helper()
	var found corev1.Event
	a.until("event "+reason, func() (string, bool) {
		all := a.events()
		for _, e := range all {
			if e.Reason == reason && strings.Contains(e.Message, words) {
				found = e
				return "", true
			}
		}
		return fmt.Sprintf("%d events", len(all)), false
	})
	return found
}
