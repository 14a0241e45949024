package parts

import (
	"fmt"
	"strings"
)

// Part is one unit of the catalogue: programs built together from one module.
type Part struct {
	Name     string
	Folder   string    // of the pinning module, beside this file
	Pin      string    // the module whose version is the part's version
	Programs []Program // the first one prints the version
	Flags    Flags
	Ask      []string // arguments that make the program print its version
	Minutes  float64  // a cold build on two cores, printed before a long wait
	Says     string   // the printed version, if it is not the pinned one
}

// Program is one binary of a part.
type Program struct {
	Name    string // file name of the result
	Package string // import path
	Test    bool   // a test binary: go test -c
}

// Flags are the build flags of a part in addition to those of all parts.
type Flags struct {
	Cgo     bool
	Tags    string
	Version []string // variables that are set to the version, including its v
	Link    []string // further linker flags
}

const (
	k8s = "k8s.io/kubernetes"

	// ownModules is the prefix of the import paths of programs whose source is in the folder of their pinning module.
	ownModules = "keelson.test/parts/"
)

// kubernetes returns a part from the module k8s.io/kubernetes. All of these parts are built with the same settings, so
// they share compiled packages.
func kubernetes(name, pkg string, minutes float64, ask ...string) Part {
	return Part{
		Name: name, Folder: "kubernetes", Pin: k8s, Ask: ask, Minutes: minutes,
		Programs: []Program{{Name: name, Package: k8s + "/" + pkg}},
		Flags: Flags{
			Version: []string{"k8s.io/component-base/version.gitVersion", "k8s.io/client-go/pkg/version.gitVersion"},
			Link: []string{
				"-X", "k8s.io/component-base/version.gitMajor=1", "-X", "k8s.io/component-base/version.gitMinor=36",
				"-X", "k8s.io/component-base/version.gitCommit=unknown", "-X",
				"k8s.io/component-base/version.gitTreeState=clean",
			},
		},
	}
}

func cniPlugins(paths ...string) []Program {
	var out []Program
	for _, p := range paths {
		out = append(out, Program{
			Name:    p[strings.LastIndex(p, "/")+1:],
			Package: "github.com/containernetworking/plugins/plugins/" + p,
		})
	}
	return out
}

// catalogue lists the parts. Those that most tests need come first.
var catalogue = []Part{
	{
		Name: "containerd", Folder: "containerd", Pin: "github.com/containerd/containerd/v2",
		Ask: []string{"--version"}, Minutes: 2,
		Programs: []Program{
			{Name: "containerd", Package: "github.com/containerd/containerd/v2/cmd/containerd"},
			{
				Name:    "containerd-shim-runc-v2",
				Package: "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
			},
			{Name: "ctr", Package: "github.com/containerd/containerd/v2/cmd/ctr"},
		},
		Flags: Flags{Version: []string{"github.com/containerd/containerd/v2/version.Version"}},
	},
	{
		Name: "runc", Folder: "runc", Pin: "github.com/opencontainers/runc", Ask: []string{"--version"}, Minutes: 0.5,
		Programs: []Program{{Name: "runc", Package: "github.com/opencontainers/runc"}},
		Flags:    Flags{Cgo: true, Tags: "seccomp"},
	},
	{
		Name: "cni", Folder: "cni", Pin: "github.com/containernetworking/plugins", Ask: []string{"--version"},
		Minutes: 0.5,
		Programs: cniPlugins("main/bridge", "main/loopback", "ipam/host-local", "meta/portmap", "meta/bandwidth",
			"meta/firewall", "meta/tuning"),
		Flags: Flags{Version: []string{"github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion"}},
	},
	{
		Name: "crictl", Folder: "crictl", Pin: "sigs.k8s.io/cri-tools", Ask: []string{"--version"}, Minutes: 1,
		Programs: []Program{{Name: "crictl", Package: "sigs.k8s.io/cri-tools/cmd/crictl"}},
		Flags:    Flags{Version: []string{"sigs.k8s.io/cri-tools/pkg/version.Version"}},
	},
	{
		Name: "etcd", Folder: "etcd", Pin: "go.etcd.io/etcd/server/v3", Ask: []string{"--version"}, Minutes: 1,
		Programs: []Program{{Name: "etcd", Package: "go.etcd.io/etcd/server/v3"}},
	},
	kubernetes("kube-apiserver", "cmd/kube-apiserver", 5, "--version"),
	kubernetes("kube-controller-manager", "cmd/kube-controller-manager", 1.5, "--version"),
	kubernetes("kube-scheduler", "cmd/kube-scheduler", 1, "--version"),
	kubernetes("kubectl", "cmd/kubectl", 1, "version", "--client"),
	kubernetes("kubelet", "cmd/kubelet", 2, "--version"),
	func() Part {
		p := kubernetes("oracle", "", 0.5, "-version")
		p.Programs[0].Package = ownModules + "kubernetes/oracle"
		return p
	}(),
	func() Part {
		p := kubernetes("agnhost", "test/images/agnhost", 1, "--version")
		p.Says = "2.63.0" // agnhost's own version, from the VERSION file beside its sources
		p.Flags.Link = append(p.Flags.Link, "-X", "main.Version=2.63.0")
		return p
	}(),
	{
		Name: "ginkgo", Folder: "kubernetes", Pin: "github.com/onsi/ginkgo/v2", Ask: []string{"version"}, Minutes: 0.5,
		Programs: []Program{{Name: "ginkgo", Package: "github.com/onsi/ginkgo/v2/ginkgo"}},
	},
	func() Part {
		p := kubernetes("e2e.test", "test/e2e", 4, "--version")
		p.Programs[0].Test = true
		return p
	}(),
	{
		Name: "coredns", Folder: "coredns", Pin: "github.com/coredns/coredns", Ask: []string{"-version"}, Minutes: 1,
		Programs: []Program{{Name: "coredns", Package: ownModules + "coredns"}},
	},
}

// Groups are names that stand for several parts.
var Groups = map[string][]string{
	"runtime":     {"containerd", "runc", "cni", "crictl"},
	"cluster":     {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"},
	"peer":        {"kubelet"},
	"inputs":      {"oracle"},
	"conformance": {"agnhost", "ginkgo", "e2e.test", "coredns"},
}

// Named returns the parts of the given names and groups, each once and in the catalogue's order. Without names it
// returns all parts.
func Named(names ...string) ([]Part, error) {
	want := map[string]bool{}
	for _, n := range names {
		if g, ok := Groups[n]; ok {
			for _, m := range g {
				want[m] = true
			}
			continue
		}
		want[n] = true
	}
	var out []Part
	for _, p := range catalogue {
		if len(names) == 0 || want[p.Name] {
			out = append(out, p)
		}
		delete(want, p.Name)
	}
	for n := range want {
		return nil, fmt.Errorf("find part %q: not in the catalogue", n)
	}
	return out, nil
}

// linkFlags returns the value of -ldflags for a part of this version.
func (p Part) linkFlags(version string) string {
	flags := []string{"-s", "-w"}
	for _, v := range p.Flags.Version {
		flags = append(flags, "-X", v+"="+version)
	}
	return strings.Join(append(flags, p.Flags.Link...), " ")
}

// commands returns the arguments of the go commands that build the part into out.
func (p Part) commands(version, out string) [][]string {
	shared := []string{"-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", p.linkFlags(version)}
	if p.Flags.Tags != "" {
		shared = append(shared, "-tags", p.Flags.Tags)
	}
	var cmds [][]string
	for _, prog := range p.Programs {
		cmd := []string{"build"}
		if prog.Test {
			// Findings of vet in upstream's suite do not matter here.
			cmd = []string{"test", "-c", "-vet=off"}
		}
		cmd = append(cmd, shared...)
		cmds = append(cmds, append(cmd, "-o", out+"/"+prog.Name, prog.Package))
	}
	return cmds
}
