package script

import (
	"crypto/tls"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"

	"keelson/test/kit/await"
)

// Served is an agent whose server listens on this machine, in real time.
type Served struct {
	*World
	URL, Healthz string
}

// handedOut are the ports that FreePort has returned to tests of this process.
var handedOut sync.Map

// FreePort is a port without a listener, from a range that the kernel does not assign by
// itself: no socket without an explicit port can take it meanwhile.
func FreePort(t *testing.T) int {
	t.Helper()
	const first, last = 15_000, 32_000 // below the ports that the kernel assigns
	for range 1000 {
		port := first + mathrand.IntN(last-first)
		if _, taken := handedOut.LoadOrStore(port, true); taken {
			continue
		}
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("there is no free port")
	return 0
}

// Listening starts an agent with a server and waits until it accepts connections.
func Listening(t *testing.T, configuration string, edit func(*World)) *Served {
	t.Helper()
	port, health := FreePort(t), FreePort(t)
	w := NewWorld(t, NodeDir(t),
		fmt.Sprintf("enableServer: true\naddress: 127.0.0.1\nport: %d\nhealthzPort: %d\n", port, health)+configuration,
		false)
	s := &Served{
		World:   w,
		URL:     fmt.Sprintf("https://127.0.0.1:%d", port),
		Healthz: fmt.Sprintf("http://127.0.0.1:%d/healthz", health),
	}
	if edit != nil {
		edit(w)
	}
	w.Start()
	t.Cleanup(func() {
		w.Close()
		if t.Failed() {
			t.Logf("the agent's log:\n%s", w.Log.String())
		}
	})
	s.untilListening(t)
	return s
}

// Unhurried is how long something that is done soon may take on a busy machine.
const Unhurried = 2 * time.Minute

// untilListening waits until all ports of the agent accept connections: the agent opens
// them independently.
func (s *Served) untilListening(t *testing.T) {
	t.Helper()
	cfg, err := s.Settings()
	if err != nil {
		t.Fatal(err)
	}
	for _, port := range []int32{cfg.Kubelet.Port, *cfg.Kubelet.HealthzPort, cfg.Kubelet.ReadOnlyPort} {
		if port == 0 {
			continue
		}
		Eventually(t, fmt.Sprintf("a listener on port %d", port), func() (string, bool) {
			c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err != nil {
				return err.Error(), false
			}
			c.Close()
			return "", true
		})
	}
}

// Ask sends a request and returns the status code and the body. Each request has a
// connection of its own.
func (s *Served) Ask(t *testing.T, path, token string, cert *tls.Certificate) (int, string) {
	t.Helper()
	conf := &tls.Config{InsecureSkipVerify: true}
	if cert != nil {
		conf.Certificates = []tls.Certificate{*cert}
	}
	tr := &http.Transport{TLSClientConfig: conf}
	defer tr.CloseIdleConnections()
	url := s.URL + path
	if strings.HasPrefix(path, "http") {
		url = path
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// Soon repeats a request until the status code is want.
func (s *Served) Soon(t *testing.T, what string, want int, ask func() (int, string)) {
	t.Helper()
	Eventually(t, fmt.Sprintf("%s: %d", what, want), func() (string, bool) {
		code, text := ask()
		return fmt.Sprint(code, " ", text), code == want
	})
}

// Rights allows everything to all users but mallory, and sets a token for alice and one for mallory.
func Rights(w *World) {
	w.Server.AddToken("good", authenticationv1.UserInfo{Username: "alice"})
	w.Server.AddToken("poor", authenticationv1.UserInfo{Username: "mallory"})
	w.Server.Authorize(func(s authorizationv1.SubjectAccessReviewSpec) bool { return s.User != "mallory" })
}

// RunPod creates a pod and waits until the agent runs it, in real time.
func (s *Served) RunPod(t *testing.T, name, spec string) {
	t.Helper()
	r := &Run{
		World:    s.World,
		Scenario: &Scenario{Files: map[string]string{name + ".yaml": spec}},
		faults:   map[string]fault{},
	}
	if err := r.apply([]string{name + ".yaml"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Awaits(name, Unhurried, isReady); err != nil {
		t.Fatal(err)
	}
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// Eventually waits until ask reports true. ask also returns the present state, for the error message.
func Eventually(t *testing.T, what string, ask func() (instead string, so bool)) {
	t.Helper()
	await.Within(t, Unhurried, 50*time.Millisecond, what, ask)
}
