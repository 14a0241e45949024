package desired

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/manifest"
	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
)

func manifestText(name, image string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  containers:\n  - name: main\n    "+
		"image: %s\n", name, image)
}

// put writes a file with an old modification time, so that it has settled.
func put(t *testing.T, path, text string) {
	t.Helper()
	tmp := filepath.Join(t.TempDir(), "new")
	if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Minute)
	if err := os.Chtimes(tmp, old, old); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(tmp, path); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

func newFiles(r *recorder, path string) *Files {
	return NewFiles(FilesConfig{
		Path:     path,
		Period:   time.Hour,
		Watch:    true,
		Manifest: manifest.Compiler{NodeName: "node1"},
		Events:   r,
		Log:      r.logger(),
	})
}

func read(f *Files) string {
	pods, _ := f.read(time.Now())
	return images(pods)
}

func images(pods []*v1.Pod) string {
	var out []string
	for _, p := range pods {
		out = append(out, p.Name+"="+p.Spec.Containers[0].Image)
	}
	return strings.Join(out, " ")
}

func TestFilesInDirectory(t *testing.T) {
	parity.ProvesPart(t, 2, "SRC-02")
	dir, r := t.TempDir(), newRecorder()
	put(t, dir+"/b.yaml", manifestText("b", "two"))
	put(t, dir+"/a.json",
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"main","image":"one"}]}}`)
	put(t, dir+"/c", manifestText("c", "any-extension"))
	put(t, dir+"/.hidden.yaml", manifestText("hidden", "x"))
	if err := os.MkdirAll(dir+"/below", 0o755); err != nil {
		t.Fatal(err)
	}
	put(t, dir+"/below/d.yaml", manifestText("d", "x"))
	put(t, dir+"/big.yaml", manifestText("big", "x")+"#"+strings.Repeat("x", 10<<20))
	f := newFiles(r, dir)
	if got := read(f); got != "a-node1=one b-node1=two c-node1=any-extension" {
		t.Errorf("pods = %s", got)
	}
	ev := strings.Join(r.Take(), "\n")
	if !strings.Contains(ev, dir+"/big.yaml: read manifest: larger than 10 MiB") ||
		!strings.Contains(ev, dir+"/below: read manifest: a directory is not a regular file") ||
		strings.Contains(ev, "hidden") {
		t.Errorf("events:\n%s", ev)
	}

	if got := read(newFiles(r, dir+"/b.yaml")); got != "b-node1=two" {
		t.Errorf("one file: %s", got)
	}
	if got, again := newFiles(r, dir+"/missing").read(time.Now()); len(got) != 0 || again != 0 {
		t.Errorf("a missing path: %v, again %v", got, again)
	}
}

// When a manifest becomes invalid, one event names the file, the field and the cause, and neither its own pod nor any
// other stops.
func TestInvalidManifestStopsNoPod(t *testing.T) {
	parity.Differs(t, "SRC-04", "0003")
	dir, r := t.TempDir(), newRecorder()
	put(t, dir+"/a.yaml", manifestText("a", "one"))
	put(t, dir+"/b.yaml", manifestText("b", "two"))
	f := newFiles(r, dir)
	read(f)
	for _, bad := range []struct{ name, text, want string }{
		{"empty", "", "the file is empty"},
		{"malformed", "a: [\n", "malformed manifest: yaml: line 1"},
		{"wrong type", manifestText("a", "[1]"),
			"malformed manifest: json: cannot unmarshal array into Go struct field Container.spec.containers.image of " +
				"type string"},
		{"another kind", "apiVersion: v1\nkind: Secret\n", `not a pod: apiVersion "v1" kind "Secret"`},
		{"invalid", manifestText("a", `""`), "invalid pod: spec.containers[0].image: Required value"},
		{"a secret", manifestText("a", "x\n    envFrom: [{secretRef: {name: s}}]"),
			"invalid pod: spec.containers[0].envFrom[0].secretRef: Forbidden: a static pod may not refer to a secret"},
	} {
		put(t, dir+"/a.yaml", bad.text)
		for range 3 {
			if got := read(f); got != "a-node1=one b-node1=two" {
				t.Fatalf("%s: pods = %s", bad.name, got)
			}
		}
		ev := r.Take()
		if len(ev) != 1 || !strings.Contains(ev[0], "FailedValidation Manifest "+dir+"/a.yaml: ") ||
			!strings.Contains(ev[0], bad.want) ||
			!strings.Contains(ev[0], "pod default/a-node1 keeps running with its last valid manifest") {
			t.Errorf("%s: events = %q", bad.name, ev)
		}
	}
	put(t, dir+"/a.yaml", manifestText("a", "three"))
	if got := read(f); got != "a-node1=three b-node1=two" {
		t.Errorf("mended: %s", got)
	}
	if r.logged("manifest is valid again") != 1 {
		t.Error("nothing says that manifest is valid again")
	}
	put(t, dir+"/a.yaml", "bad again")
	read(f)
	remove(t, dir+"/a.yaml")
	if got := read(f); got != "b-node1=two" {
		t.Errorf("removed: %s: a removed manifest ends its pod, good or bad", got)
	}
}

func TestFileBeingWrittenIsNotRead(t *testing.T) {
	dir, r := t.TempDir(), newRecorder()
	put(t, dir+"/a.yaml", manifestText("a", "one"))
	f := newFiles(r, dir)
	read(f)
	if err := os.WriteFile(dir+"/a.yaml", []byte("apiVersion: v1\nkind: P"), 0o644); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(dir + "/a.yaml")
	if err != nil {
		t.Fatal(err)
	}
	pods, again := f.read(info.ModTime().Add(settle / 4))
	if images(pods) != "a-node1=one" || again <= 0 || again > settle || len(r.Take()) != 0 {
		t.Errorf("half written: %s, again in %v", images(pods), again)
	}
	pods, again = f.read(info.ModTime().Add(settle))
	if images(pods) != "a-node1=one" || again != 0 || len(r.Take()) != 1 {
		t.Errorf("left half written: %s, again in %v", images(pods), again)
	}
}

func TestUnknownFieldsAreLogged(t *testing.T) {
	dir, r := t.TempDir(), newRecorder()
	put(t, dir+"/a.yaml", manifestText("a", "one\n    comand: [x]"))
	f := newFiles(r, dir)
	for range 2 {
		if got := read(f); got != "a-node1=one" {
			t.Fatalf("pods = %s", got)
		}
	}
	if r.logged(`unknown field \"spec.containers[0].comand\"`) != 1 {
		t.Errorf("log:\n%s", r.log.String())
	}
}

// eventually waits for a store to hold the pods, as names and images.
func eventually(t *testing.T, s *Store, r *recorder, want string) {
	t.Helper()
	for timeout := time.After(time.Minute); ; {
		var pods []*v1.Pod
		for _, p := range s.All() {
			pods = append(pods, p.Spec)
		}
		got := images(pods)
		if got == want {
			return
		}
		select {
		case <-r.woken:
		case <-timeout:
			t.Fatalf("pods = %q, want %q", got, want)
		}
	}
}

// Every way to change a manifest is noticed well within a second, although the next full read is an hour away.
func TestFileChangesAreSeenAtOnce(t *testing.T) {
	parity.ProvesPart(t, 2, "SRC-02")
	parity.ProvesPart(t, 4, "SRC-03")
	dir, r := t.TempDir(), newRecorder()
	path := dir + "/manifests"
	s := start(t, Config{
		NodeName: "node1",
		Sources:  []Source{newFiles(r, path)},
		Events:   r,
		OnChange: r.changed,
		Log:      r.logger(),
	})
	<-s.ReadyC() // a missing path counts as read
	made := time.Now()
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(path+"/"+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("a.yaml", manifestText("a", "one"))
	slowest := time.Since(made)
	eventually(t, s, r, "a-node1=one") // the creation of the path is notified

	for _, step := range []struct {
		name, want string
		do         func()
	}{
		{"written in place", "a-node1=two", func() { write("a.yaml", manifestText("a", "two")) }},
		{"renamed into place", "a-node1=three", func() { put(t, path+"/a.yaml", manifestText("a", "three")) }},
		{"as vim does", "a-node1=four", func() {
			if err := os.Rename(path+"/a.yaml", path+"/a.yaml~"); err != nil {
				t.Fatal(err)
			}
			write("a.yaml", manifestText("a", "four"))
			remove(t, path+"/a.yaml~")
		}},
		{"written slowly", "a-node1=five", func() {
			text := manifestText("a", "five")
			file, err := os.OpenFile(path+"/a.yaml", os.O_WRONLY|os.O_TRUNC, 0)
			if err != nil {
				t.Fatal(err)
			}
			for i := range text {
				if _, err := file.WriteString(text[i : i+1]); err != nil {
					t.Fatal(err)
				}
			}
			if err := file.Close(); err != nil {
				t.Fatal(err)
			}
		}},
		{"a second one", "a-node1=five b-node1=one", func() { write("b.yaml", manifestText("b", "one")) }},
		{"a link to one elsewhere", "a-node1=five b-node1=one c-node1=one", func() {
			put(t, dir+"/elsewhere.yaml", manifestText("c", "one"))
			if err := os.Symlink(dir+"/elsewhere.yaml", path+"/c.yaml"); err != nil {
				t.Fatal(err)
			}
		}},
		{"removed", "b-node1=one", func() { remove(t, path+"/a.yaml"); remove(t, path+"/c.yaml") }},
		{"the directory too", "", func() { remove(t, path) }},
	} {
		begun := time.Now()
		step.do()
		slowest = max(slowest, time.Since(begun))
		eventually(t, s, r, step.want) // the directory is read once an hour
	}
	// If a step took as long as a file needs to settle, a half-written file may have been read.
	if ev := r.Take(); len(ev) != 0 && slowest < settle/2 {
		t.Errorf("events about good manifests: %q", ev)
	}
}

// The creation of a path that did not exist is notified, however long ago it was looked for.
func TestPathCreationIsNotified(t *testing.T) {
	parity.ProvesPart(t, 4, "SRC-03")
	r, parent := newRecorder(), filepath.Join(t.TempDir(), "etc")
	w := &pathWatch{path: filepath.Join(parent, "manifests"), log: r.logger(), backoff: watchBackoff}
	defer w.close()
	for _, dir := range []string{parent, w.path} {
		if got := w.ensure(); got == 0 {
			t.Errorf("before %s is made nothing is tried again", dir)
		}
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		select {
		case <-w.changes():
		case <-time.After(time.Minute):
			t.Fatalf("the creation of %s is not notified", dir)
		}
	}
	if got := w.ensure(); got != 0 {
		t.Errorf("the path is there, and it is tried again in %v", got)
	}
	put(t, filepath.Join(w.path, "a.yaml"), manifestText("a", "one"))
	select {
	case e := <-w.changes():
		if e.Name != filepath.Join(w.path, "a.yaml") {
			t.Errorf("notified of %s", e.Name)
		}
	case <-time.After(time.Minute):
		t.Error("a manifest is not notified")
	}
}

// A path that cannot be watched is tried again, less and less often.
func TestFailedWatchIsRetried(t *testing.T) {
	parity.ProvesPart(t, 4, "SRC-03")
	r, path := newRecorder(), filepath.Join(t.TempDir(), "manifests")
	w := &pathWatch{path: path, log: r.logger(), backoff: watchBackoff}
	defer w.close()
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 20, 20} {
		if got := w.ensure(); got != want*time.Second {
			t.Errorf("after %d failures it is tried again in %v, want %v", i+1, got, want*time.Second)
		}
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := w.ensure(); got != 0 || w.changes() == nil {
		t.Errorf("the path is there, and it is tried again in %v", got)
	}
	remove(t, path)
	if got := w.ensure(); got != time.Second {
		t.Errorf("the path is gone, and it is tried again in %v, want 1s as at first", got)
	}
}

func TestStaticPodsFromFileToMirror(t *testing.T) {
	parity.ProvesPart(t, 3, "SRC-08")
	dir, r, api := t.TempDir(), newRecorder(), newFakeAPI()
	put(t, dir+"/a.yaml", manifestText("a", "one"))
	server := newScript(pod.SourceAPI)
	s := start(t, Config{
		NodeName: "node1",
		Sources:  []Source{newFiles(r, dir), server},
		Events:   r,
		OnChange: r.changed,
		Log:      r.logger(),
		Mirrors:  &MirrorConfig{API: api, Node: api.node, Busy: func(string) bool { return false }},
	})
	server.replace()
	m := <-api.made
	p, ok := s.ByName("default", "a-node1")
	if !ok {
		t.Fatal("no pod")
	}
	if p.Spec.Annotations["kubernetes.io/config.hash"] != string(p.Spec.UID) ||
		p.Spec.Annotations["kubernetes.io/config.source"] != "file" {
		t.Errorf("annotations of the static pod: %v", p.Spec.Annotations)
	}
	if _, err := time.Parse(time.RFC3339Nano, p.Spec.Annotations["kubernetes.io/config.seen"]); err != nil {
		t.Errorf("first seen: %v", err)
	}
	if m.Annotations["kubernetes.io/config.mirror"] != string(p.Spec.UID) ||
		m.Annotations["kubernetes.io/config.hash"] != string(p.Spec.UID) {
		t.Errorf("annotations of the mirror pod: %v", m.Annotations)
	}
}

// A change behind a symbolic link is not notified; the next full read sees it.
func TestFullReadFindsUnnotifiedChange(t *testing.T) {
	parity.ProvesPart(t, 4, "SRC-03")
	dir, r := t.TempDir(), newRecorder()
	path := dir + "/manifests"
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	put(t, dir+"/elsewhere.yaml", manifestText("a", "one"))
	if err := os.Symlink(dir+"/elsewhere.yaml", path+"/a.yaml"); err != nil {
		t.Fatal(err)
	}
	f := newFiles(r, path)
	f.cfg.Period = 20 * time.Millisecond
	s := start(t, Config{NodeName: "node1", Sources: []Source{f}, Events: r, OnChange: r.changed, Log: r.logger()})
	eventually(t, s, r, "a-node1=one")
	put(t, dir+"/elsewhere.yaml", manifestText("a", "two"))
	eventually(t, s, r, "a-node1=two")
}

// taken keeps what was delivered.
type taken struct {
	Sink
	sets []string
}

func (s *taken) Replace(pods []*v1.Pod) { s.sets = append(s.sets, images(pods)) }

// An agent that starts and cannot read the directory has no pods to deliver. If it delivered an empty list, the pods
// that an earlier agent has started would be terminated.
func TestUnreadableDirectoryDeliversNoList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, to, parent := newRecorder(), &taken{}, filepath.Join(t.TempDir(), "manifests.d")
		put(t, parent, "a file in the place of a directory")
		path := filepath.Join(parent, "static")
		f := NewFiles(FilesConfig{
			Path:     path,
			Period:   time.Minute,
			Manifest: manifest.Compiler{NodeName: "node1"},
			Events:   r,
			Log:      r.logger(),
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- f.Run(ctx, to) }()
		expect := func(what string, want ...string) {
			t.Helper()
			synctest.Wait()
			if !slices.Equal(to.sets, want) {
				t.Errorf("%s: delivered %q, want %q", what, to.sets, want)
			}
		}
		expect("unreadable")
		time.Sleep(time.Minute)
		expect("still unreadable")
		if n := len(r.Take()); n != 1 {
			t.Errorf("%d events, want one", n)
		}
		remove(t, parent)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(path, "web.yaml"), manifestText("web", "a"))
		time.Sleep(time.Minute)
		expect("readable", "web-node1=a")
		remove(t, parent)
		put(t, parent, "a file again")
		time.Sleep(time.Minute)
		expect("unreadable later", "web-node1=a", "web-node1=a")
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
