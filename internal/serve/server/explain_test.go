package server_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"keelson/internal/pods/explain"
	"keelson/internal/serve/server"
)

// fakeExplainer has one pod.
type fakeExplainer struct{}

func (fakeExplainer) Pod(_ context.Context, ns, name string) (explain.Pod, bool) {
	p := explain.Pod{
		Namespace: ns,
		Name:      name,
		UID:       "uid-web",
		At:        time.Now(),
		Waits:     []explain.Wait{{For: "<b>its</b> volumes", Error: "no such \"disk\""}},
	}
	explain.Judge(&p)
	return p, ns == "default" && name == "web"
}

func (fakeExplainer) List(context.Context) explain.List {
	return explain.List{
		Node: nodeName,
		Pods: []explain.Line{{Namespace: "default", Name: "web", State: explain.Failing, Verdict: "because"}},
	}
}

func TestExplain(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	// An agent that was killed has left its socket.
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	left.Close()
	served := make(chan struct{}, 1)
	r := newRig(t, func(p *parts) {
		p.server.LocalSocket = socket
		listen := p.server.OnListen
		p.server.OnListen = func(port server.Port, a net.Addr) {
			if port == server.Local {
				served <- struct{}{}
				return
			}
			listen(port, a)
		}
	})
	const path = "/debug/keelson/pods"
	if got := r.as("may-proxy", "GET", path+"/default/web"); got.code != 200 ||
		!strings.Contains(got.text, `"state":"Failing"`) {
		t.Errorf("%d %s", got.code, got.text)
	}
	if got := r.as("may-proxy", "GET", path+"/default/web?output=text"); !strings.Contains(got.text,
		"\nwaits      for "+
			"<b>its</b> volumes\n") {
		t.Errorf("%s", got.text)
	}
	if got := r.as("may-proxy", "GET", path+"/default/web?output=html"); strings.Contains(got.text, "<b>its") ||
		!strings.Contains(got.text, "&lt;b&gt;its") || !strings.HasPrefix(got.header.Get("Content-Type"), "text/html") {
		t.Errorf("%s", got.text)
	}
	if got := r.as("may-proxy", "GET", path+"/default/other"); got.code != 404 ||
		got.text != `no pod "other" in namespace "default" on this node` {
		t.Errorf("%d %q", got.code, got.text)
	}
	if got := r.as("may-pods", "GET", path); got.code != 403 {
		t.Errorf("without the right: %d", got.code)
	}
	select {
	case <-served:
	case <-time.After(time.Minute):
		t.Fatal("the socket is not served")
	}
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v %v, want 0600", info.Mode(), err)
	}
	local := &http.Client{
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}},
	}
	defer local.CloseIdleConnections()
	if got := r.ask(local, "GET", "http://node"+path); got.code != 200 ||
		!strings.Contains(got.text, `"verdict":"because"`) {
		t.Errorf("%d %s", got.code, got.text)
	}
	for method, other := range map[string]string{"GET": "/pods", "POST": path} {
		if got := r.ask(local, method, "http://node"+other); got.code == 200 {
			t.Errorf("%s %s on the socket: %d", method, other, got.code)
		}
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(socket); err == nil {
		t.Error("the socket is still there")
	}
}
