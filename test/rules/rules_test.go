package rules

import (
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

const root = "../.."

var listed = sync.OnceValues(func() ([]Package, error) { return List(root) })

func packages(t *testing.T) []Package {
	t.Helper()
	pkgs, err := listed()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(pkgs, func(p Package) bool { return p.ImportPath == Module+"/test/rules" }) {
		t.Fatal("go list did not return this very package")
	}
	return pkgs
}

func report(t *testing.T, violations []string) {
	t.Helper()
	for _, v := range violations {
		t.Error(v)
	}
}

func TestEveryPackageHasAComment(t *testing.T) { report(t, Comments(packages(t))) }

func TestImportsGoDown(t *testing.T) { report(t, Layers(packages(t))) }

func TestProductShunsHeavyLibraries(t *testing.T) { report(t, Shunned(packages(t))) }

func TestGoModNamesNoUpstream(t *testing.T) {
	text, err := os.ReadFile(root + "/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	report(t, GoMod(string(text)))
}

// pkg makes a product package of a fake graph.
func pkg(path string, imports ...string) Package {
	p := Package{ImportPath: path, Doc: "Package x is.", GoFiles: []string{"x.go"}, Imports: imports}
	if strings.HasPrefix(path, Module+"/") {
		p.Module = &struct{ Path string }{Module}
	}
	return p
}

func TestLayersCatches(t *testing.T) {
	const in = "keelson/internal/"
	for _, c := range []struct {
		name string
		pkg  Package
		want string // "" = allowed
	}{
		{
			"a driver may use a subsystem, an adapter and the floor",
			pkg(in+"pods/podsync", in+"pods/status", in+"runtime/cri", in+"pods/pod", "time"),
			"",
		},
		{"a subsystem may use an adapter", pkg(in+"runtime/container", in+"runtime/cri"), ""},
		{"a child may use its parent", pkg(in+"storage/volume/csi", in+"storage/volume"), ""},
		{"floor packages may use each other", pkg(in+"pods/podplan", in+"pods/pod"), ""},
		{"app uses everything", pkg(in+"app", in+"config", in+"pods/podsync", in+"storage/volume/csi"), ""},
		{"the command uses app and config", pkg("keelson/cmd/kubelet", in+"app", in+"config"), ""},
		{"a room holds a comment only", pkg(in + "pods"), ""},
		{"a subsystem does not use another", pkg(in+"pods/status", in+"pods/probe"), "one subsystem does not import another"},
		{
			"a driver does not use another",
			pkg(in+"resources/eviction", in+"pods/podsync"),
			"one driver does not import another",
		},
		{"an adapter does not use another", pkg(in+"runtime/cri", in+"runtime/logs"), "one adapter does not import another"},
		{"imports do not go up", pkg(in+"runtime/cri", in+"pods/status"), "imports go down only"},
		{"the floor uses nothing above", pkg(in+"pods/podplan", in+"storage/mount"), "imports go down only"},
		{"a parent does not use its child", pkg(in+"storage/volume", in+"storage/volume/csi"), "a child imports its parent"},
		{
			"siblings do not use each other",
			pkg(in+"storage/volume/csi", in+"storage/volume/builtin"),
			"a child imports its parent",
		},
		{"config is for app and cmd", pkg(in+"serve/server", in+"config"), "only cmd and app import config"},
		{"config uses the floor only", pkg(in+"config", in+"api/client"), "nothing but the floor"},
		{"the product does not use its tests", pkg(in+"pods/pod", "keelson/test/kit/parity"), "does not import its tests"},
		{
			"the product does not use its tools",
			pkg(in+"pods/pod", "keelson/tools/uml"),
			"does not import its tests and tools",
		},
		{"a room has no code to import", pkg(in+"pods/status", in+"pods"), "a room holds no code"},
		{"a room imports nothing", pkg(in+"pods", in+"pods/pod"), "a room imports nothing"},
		{"an unknown package must find its place", pkg(in + "pods/novelty"), "add it to `layers` in test/rules/layers.go"},
		{"an empty name", pkg(in + "pods/pod/util"), "the name says nothing"},
	} {
		t.Run(c.name, func(t *testing.T) { check(t, Layers([]Package{c.pkg}), c.want) })
	}
}

func TestCommentsCatches(t *testing.T) {
	bare := pkg("keelson/internal/pods/pod")
	bare.Doc = ""
	check(t, Comments([]Package{bare}), "keelson/internal/pods/pod has no package comment")
	bare.GoFiles = nil // tests only
	check(t, Comments([]Package{bare}), "")
	check(t, Comments([]Package{{ImportPath: "example.com/other", GoFiles: []string{"x.go"}}}), "")
}

func TestShunnedCatches(t *testing.T) {
	graph := func(imports ...string) []Package {
		return []Package{
			pkg("keelson/internal/api/node", imports...),
			pkg("keelson/test/kit/fakeapi", "k8s.io/client-go/kubernetes/scheme"),
			pkg("example.com/friendly", "example.com/deep"),
			pkg("example.com/deep", "k8s.io/client-go/kubernetes/scheme"),
			pkg("k8s.io/client-go/rest", "k8s.io/client-go/kubernetesque"),
		}
	}
	check(t, Shunned(graph("k8s.io/client-go/rest", "time")), "")
	check(t, Shunned(graph("k8s.io/client-go/kubernetes/typed/core/v1")),
		"imports k8s.io/client-go/kubernetes/typed/core/v1,")
	check(t, Shunned(graph("example.com/friendly")),
		"imports example.com/friendly → example.com/deep → k8s.io/client-go/kubernetes/scheme,")
}

func TestGoModCatches(t *testing.T) {
	check(t, GoMod("require (\n\tk8s.io/kubernetes v1.36.3 // indirect\n)\n"), "k8s.io/kubernetes v1.36.3")
	check(t, GoMod("require k8s.io/kubelet v0.36.3\nrequire k8s.io/api v0.36.3 // as k8s.io/kubernetes-sigs\n"), "")
}

// check fails unless there is exactly one violation that contains want, or none if want is "".
func check(t *testing.T, got []string, want string) {
	t.Helper()
	switch {
	case want == "" && len(got) > 0:
		t.Errorf("caught %q, want nothing", got)
	case want != "" && (len(got) != 1 || !strings.Contains(got[0], want)):
		t.Errorf("caught %q, want one sentence that says %q", got, want)
	}
}
