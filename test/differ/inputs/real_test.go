package inputs

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"keelson/test/kit/need"
	"keelson/test/parts"
	"keelson/test/rig"
)

var real = flag.Int("real", 12, "number of configurations that real kubelets are started with")

func TestMain(m *testing.M) {
	Inside()
	os.Exit(m.Run())
}

// node is a node for real kubelets, and the two binaries.
func node(t *testing.T) (n *Node, ours, theirs string) {
	t.Helper()
	if unified, err := Unified(); err != nil || unified {
		need.Skip(t, "real kubelets run on cgroup v1", unified, err)
	}
	r := rig.Start(t, rig.Options{NoRuntime: true})
	n, err := NewNode(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	b, err := parts.New(testWriter{t})
	if err != nil {
		t.Fatal(err)
	}
	if theirs, err = b.Path(t.Context(), "kubelet"); err != nil {
		t.Fatal(err)
	}
	if ours, err = rig.OurKubelet(t.Context(), t.TempDir()); err != nil {
		t.Fatal(err)
	}
	return n, ours, theirs
}

// TestRealConfigurations starts upstream's kubelet and ours with configurations of the kind that
// TestConfigurations compares. The oracle's answers have to agree with upstream's kubelet, and
// our kubelet has to do the same.
func TestRealConfigurations(t *testing.T) {
	o, s := start(t)
	n, ours, theirs := node(t)
	c, err := NewConfigs(o, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var accepted, refused, node int
	for i := *from; accepted+refused+node < *real; i++ {
		k := c.draw(s, i)
		if k.base >= 0 && !startable[c.bases[k.base].name] {
			continue
		}
		args, did, _, err := c.write(k)
		if err != nil {
			t.Fatal(err)
		}
		args = append(args, n.Flags()...)
		if slices.ContainsFunc(args, func(arg string) bool { return strings.Contains(arg, "\x00") }) {
			continue // a program cannot be given one
		}
		logged, err := o.Ask(Question{Config: &ConfigQuestion{Args: args}})
		if err != nil {
			t.Fatal(err)
		}
		// At most a third of them are refused inputs: generated inputs are refused more often.
		if logged.Refused != "" && 3*refused > *real {
			continue
		}
		up, our := n.run(t, theirs, args), n.run(t, ours, args)
		what := fmt.Sprintf("seed %d, input %d: %s", s, i, strings.Join(did, "; "))
		switch {
		case logged.Refused != "" && up.Ended != "":
			refused++
			if !sameWords(up.Ended, logged.Refused) {
				t.Errorf("%s:\n  the oracle says %s\n  upstream's kubelet %s", what, logged.Refused, up.Ended)
			}
		case logged.Refused == "" && up.Ended != "" && ofTheNode.MatchString(up.Ended):
			node++ // ours may detect this only after it has begun to serve
			continue
		case logged.Refused == "" && up.Ended == "":
			accepted++
			for _, d := range compare(logged.Kubelet, up.Configz) {
				t.Errorf("%s: upstream's kubelet shows not what the oracle says: %s", what,
					strings.Replace(d, "ours", "oracle's", 1))
			}
		default:
			t.Errorf("%s:\n  the oracle says %q\n  upstream's kubelet %q", what, logged.Refused, up.Ended)
		}
		d := &Difference{
			Seed:   s,
			Number: i,
			Did:    did,
			Ours:   problem(our.Ended),
			Theirs: up.Ended,
		}
		if our.Ended == "" && up.Ended == "" {
			d.Changed = compare(our.Configz, up.Configz)
		}
		if ((our.Ended == "") != (up.Ended == "") || len(d.Changed) > 0) && ruleFor(d) == nil {
			t.Errorf("%s", d)
		}
	}
	t.Logf("%d configurations of seed %d under real kubelets: %d served, %d refused, %d ended because of the node",
		*real, s, accepted, refused, node)
}

// TestRealManifests gives upstream's kubelet and ours a directory of manifests of the kind that
// TestManifests compares. They have to accept the pods that the oracle accepts, and have to have the
// same pods. No pod runs: the node has no capacity.
func TestRealManifests(t *testing.T) {
	o, s := start(t)
	n, ours, theirs := node(t)
	m, err := NewManifests(o)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	accepted, names := map[string]json.RawMessage{}, map[string]bool{}
	refused := 0
	for i := range 10 * *real {
		k := m.draw(s, i)
		if m.bases[k.base].name == "list.yaml" {
			continue // only a URL may answer with one
		}
		k.url, k.refs, k.name = false, false, fmt.Sprintf("pod-%d", i)
		text, _ := m.text(k)
		if d, err := m.compare(text, false, false); err != nil {
			t.Fatal(err)
		} else if d != nil {
			continue // TestManifests reports it
		}
		q := ManifestQuestion{
			Text: text,
			Node: nodeName,
			File: filepath.Join(dir, fmt.Sprintf("%d.yaml", i)),
		}
		logged, err := o.Ask(Question{Manifest: &q})
		if err != nil {
			t.Fatal(err)
		}
		if logged.Refused != "" {
			refused++
		} else {
			id := identityOf(t, logged.Pods[0])
			if names[id.Namespace+"/"+id.Name] || accepted[id.UID] != nil {
				continue // a kubelet accepts only one pod of a name
			}
			names[id.Namespace+"/"+id.Name], accepted[id.UID] = true, logged.Pods[0]
		}
		if err := os.WriteFile(q.File, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if len(accepted) < *real || refused < *real {
		t.Fatalf("%d manifests accepted, %d refused", len(accepted), refused)
	}
	args := append(n.Flags(), "--max-pods=0", "--pod-manifest-path="+dir)
	taken := func(binary string) map[string]json.RawMessage {
		seen, err := n.Run(t.Context(), Start{
			Binary: binary,
			Args:   args,
			Pods:   len(accepted),
		})
		if err != nil || seen.Ended != "" {
			t.Fatalf("%v, ended: %s", err, seen.Ended)
		}
		out := map[string]json.RawMessage{}
		for _, p := range seen.Pods {
			out[identityOf(t, p).UID] = p
		}
		return out
	}
	up, our := taken(theirs), taken(ours)
	for uid, p := range our {
		if accepted[uid] == nil {
			t.Errorf("our kubelet takes what the oracle refuses: %s", p)
		}
	}
	for uid, p := range up {
		if accepted[uid] == nil {
			t.Errorf("upstream's kubelet takes what the oracle refuses: %s", p)
			continue
		}
		for _, d := range compare(accepted[uid], p, "apiVersion", "kind", "status") {
			if strings.HasPrefix(d, ".metadata.annotations.kubernetes.io/config.s") {
				continue // where a pod came from, and when, is added later
			}
			t.Errorf("%+v: the oracle and upstream's kubelet (for ours and upstream's): %s", identityOf(t, p), d)
		}
	}
	for uid, p := range accepted {
		if up[uid] == nil {
			t.Errorf("upstream's kubelet does not take what the oracle accepts: %s", p)
			continue
		}
		if our[uid] == nil {
			t.Errorf("our kubelet does not take what upstream's takes: %s", p)
			continue
		}
		d := &Difference{}
		for _, c := range compare(our[uid], up[uid], "apiVersion", "kind", "status") {
			if !strings.HasPrefix(c, ".metadata.annotations.kubernetes.io/config.seen: ") {
				d.Changed = append(d.Changed, "pod "+c)
			}
		}
		if len(d.Changed) > 0 && ruleFor(d) == nil {
			t.Errorf("%+v: %s", identityOf(t, p), d)
		}
	}
	t.Logf("%d manifests of seed %d under real kubelets: %d taken, %d refused", len(accepted)+refused, s, len(up),
		refused)
}

// identity distinguishes pods.
type identity struct{ Namespace, Name, UID string }

func identityOf(t *testing.T, pod json.RawMessage) identity {
	t.Helper()
	var p struct{ Metadata identity }
	if err := json.Unmarshal(pod, &p); err != nil {
		t.Fatal(err)
	}
	return p.Metadata
}

// startable are the files that a kubelet can start with on a [Node].
var startable = map[string]bool{"small.yaml": true, "node.yaml": true}

// ofTheNode matches errors about settings that this node does not support. The oracle does not check those.
var ofTheNode = regexp.MustCompile(
	`is not a subset of online-cpus|LimitedSwap but it is only supported with cgroupv2|has some missing paths|received unsupported options|read-only file system`)

// sameWords reports whether a log contains the first line of an error. Quoting is ignored.
func sameWords(log, refused string) bool {
	plain := strings.NewReplacer(`\n`, "\n", `\`, "").Replace
	first, _, _ := strings.Cut(plain(refused), "\n")
	if strings.HasPrefix(first, "panic: ") {
		first, _, _ = strings.Cut(first, ", error: ") // what follows has a list in random order
	}
	return strings.Contains(plain(log), first)
}

// problem is our error in the form of [Difference].
func problem(ended string) string {
	_, text, _ := strings.Cut(ended, "kubelet: ")
	return strings.ReplaceAll(text, "\n", "; ")
}

// run runs a kubelet for a short time.
func (n *Node) run(t *testing.T, binary string, args []string) Seen {
	t.Helper()
	seen, err := n.Run(t.Context(), Start{
		Binary: binary,
		Args:   args,
	})
	if err != nil {
		t.Fatal(err)
	}
	return seen
}
