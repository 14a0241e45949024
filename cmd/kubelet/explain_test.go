package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"net"

	"keelson/internal/pods/explain"
	"keelson/internal/pods/timeline"
	"keelson/internal/serve/server"
)

// node has three pods, of which two have the same name.
type node struct{}

var seen = time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)

func (node) Pod(_ context.Context, ns, name string) (explain.Pod, bool) {
	p := explain.Pod{
		Namespace:  ns,
		Name:       name,
		UID:        "uid-" + ns,
		At:         seen.Add(12 * time.Second),
		Arrived:    seen,
		Source:     "a file",
		Phase:      "Pending",
		Containers: []explain.Container{{Name: "main", Kind: "container", Image: "app:<2>", State: "not created"}},
		Waits: []explain.Wait{{
			For:    "image app:<2> of container main",
			Reason: "ErrImagePull",
			Error:  "not found\nat all",
			Since:  seen.Add(time.Second),
			Next:   seen.Add(20 * time.Second),
		}},
		Steps: []timeline.View{
			{Verb: "run sandbox", Began: seen, Ended: seen.Add(150 * time.Millisecond), Calls: []timeline.Call{{
				Method: "RunPodSandbox",
				Began:  seen.Add(10 * time.Millisecond),
				Took:   130 * time.Millisecond,
			}}},
			{
				Verb:   "fetch image",
				Target: "main",
				Began:  seen,
				Ended:  seen.Add(time.Second),
				Error:  "<script>alert(1)</script>",
			},
		},
	}
	explain.Judge(&p)
	return p, ns == "one" && (name == "web" || name == "db") || ns == "two" && name == "web"
}

func (node) List(context.Context) explain.List {
	return explain.List{Node: "node-1", At: seen, Pods: []explain.Line{
		{
			Namespace: "one",
			Name:      "db",
			State:     explain.Ready,
			Verdict:   "all containers run and are ready",
			Since:     seen.Add(-time.Hour),
		},
		{Namespace: "one", Name: "web", State: explain.Failing, Verdict: "because", Since: seen.Add(-3 * time.Second)},
		{Namespace: "two", Name: "web", State: explain.Running, Verdict: "x"},
	}}
}

// serve serves the node at the explain socket below a root directory.
func serve(t *testing.T) (root string) {
	t.Helper()
	root = t.TempDir()
	up := make(chan struct{})
	s, err := server.New(server.Config{
		Listeners: server.Listeners{
			LocalSocket: filepath.Join(root, explain.Socket),
			OnListen:    func(server.Port, net.Addr) { close(up) },
		},
		Sources: server.Sources{Explain: node{}},
		Log:     slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	<-up
	return root
}

func TestExplain(t *testing.T) {
	root := serve(t)
	ask := func(args ...string) (string, string, int) {
		t.Helper()
		var out, errs bytes.Buffer
		code := runExplain(append(args, "--root-dir", root, "--width", "100"), &out, &errs)
		return out.String(), errs.String(), code
	}
	out, errs, code := ask()
	const list = "POD      STATE        SINCE    WHY\none/web  Failing      3.0 s    because\ntwo/web  Running     " +
		"          x\none/db   Ready        60 min   all containers run and are ready\n"
	if code != 0 || out != list {
		t.Errorf("%d %s\n%s", code, errs, out)
	}
	out, errs, code = ask("db")
	for _, want := range []string{
		"pod        one/db   uid-one\n", "state      Failing, for 11 s\n",
		"waits      for image app:<2> of container main, for 11 s\n           ErrImagePull\nerror      not found\n    " +
			"       at all\nnext retry in 8.0 s\n",
		"step       run sandbox           0 ms   150 ms  ██████",
		"step         RunPodSandbox      10 ms   130 ms  ▒▒▒▒▒",
		"failed: <script>alert(1)</script>\n",
	} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("%d %s: no %q in\n%s", code, errs, want, out)
		}
	}
	for line := range strings.Lines(out) {
		if n := len([]rune(line)); n > 150 {
			t.Errorf("a line of %d columns: %s", n, line)
		}
	}
	if out, _, code = ask("one/web", "-o", "json"); code != 0 || !json.Valid([]byte(out)) ||
		!strings.Contains(out, `"state":"Failing"`) {
		t.Errorf("%d %s", code, out)
	}
	if out, _, code = ask("-n", "two", "-o", "json"); code != 0 || !json.Valid([]byte(out)) ||
		!strings.Contains(out, `"namespace":"two"`) || strings.Contains(out, `"namespace":"one"`) {
		t.Errorf("of one namespace: %d %s", code, out)
	}
	if out, _, code = ask("-n", "three", "-o", "json"); code != 0 || !strings.Contains(out, `"pods":[]`) {
		t.Errorf("of a namespace without pods: %d %s", code, out)
	}
	file := filepath.Join(t.TempDir(), "start.html")
	out, errs, code = ask("web", "-n", "two", "--html", file)
	if code != 0 || out != "wrote page of two/web to "+file+"\n" {
		t.Errorf("%d %s %s", code, out, errs)
	}
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// Texts of errors are escaped, and the page loads nothing from elsewhere.
	for _, absent := range []string{"<script", "http://", "https://", "src=", "@import"} {
		if strings.Contains(string(page), absent) {
			t.Errorf("the page has %s", absent)
		}
	}
	for _, want := range []string{"<!doctype html>", "&lt;script&gt;", "margin-left:", "image app:&lt;2&gt;"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	for want, args := range map[string][]string{
		`no pod "absent" on node node-1; kubelet explain without a name lists all pods`: {"absent"},
		`no pod "db" in namespace "two" on this node`:                                   {"db", "-n", "two"},
		`pods "web" exist in the namespaces one, two: select one with -n`:               {"web"},
		`expected one pod, got a b (kubelet explain --help)`:                            {"a", "b"},
		`--output is text or json, not xml`:                                             {"db", "-o", "xml"},
		`--html needs the name of a pod`:                                                {"--html", "x"},
		`namespace one of the pod's name is not two of --namespace`:                     {"one/db", "-n", "two"},
		`unknown flag: --nothing (kubelet explain --help)`:                              {"--nothing"},
	} {
		if out, errs, code := ask(args...); code != 1 || out != "" || errs != "kubelet explain: "+want+"\n" {
			t.Errorf("%v: %d %q %q", args, code, out, errs)
		}
	}
	if out, _, code := ask("--help"); code != 0 || !strings.Contains(out, "kubelet explain NAMESPACE/POD") ||
		!strings.Contains(out, "--html string") {
		t.Errorf("%d %s", code, out)
	}
	root = t.TempDir()
	if _, errs, code := ask("db"); code != 1 || !strings.Contains(errs, "no kubelet listens at "+root) ||
		!strings.Contains(errs, "--root-dir") {
		t.Errorf("absent pod:  %d %q", code, errs)
	}
}
