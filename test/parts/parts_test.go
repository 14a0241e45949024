package parts

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestEveryPartIsPinned(t *testing.T) {
	t.Setenv("KEELSON_CACHE", t.TempDir())
	b, err := New(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	all, err := Named()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"containerd": "v2.4.2", "runc": "v1.5.2", "cni": "v1.9.1", "crictl": "v1.36.0", "etcd": "v3.7.3",
		"kube-apiserver": "v1.36.3", "kube-controller-manager": "v1.36.3", "kube-scheduler": "v1.36.3",
		"kubectl": "v1.36.3", "kubelet": "v1.36.3", "e2e.test": "v1.36.3",
	}
	for _, p := range all {
		s, err := b.State(p)
		if err != nil {
			t.Errorf("%s: %v", p.Name, err)
			continue
		}
		if v, ok := want[p.Name]; ok && s.Version != v {
			t.Errorf("%s is pinned to %s, want %s", p.Name, s.Version, v)
		}
		if s.Built {
			t.Errorf("%s counts as built in an empty cache", p.Name)
		}
	}
}

func TestAPartFromElsewhereIsUsedOnlyWhenAllItsProgramsAreThere(t *testing.T) {
	dir := t.TempDir()
	b := &Builder{out: io.Discard}
	ps, err := Named("containerd")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KEELSON_PART_CONTAINERD", dir)
	if _, err := b.State(ps[0]); err == nil || !strings.Contains(err.Error(), "KEELSON_PART_CONTAINERD") {
		t.Errorf("an empty folder is accepted: %v", err)
	}
	for _, prog := range ps[0].Programs {
		if err := os.WriteFile(filepath.Join(dir, prog.Name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	t.Setenv("KEELSON_PART_CONTAINERD", "path")
	if s, err := b.State(ps[0]); err != nil || s.Dir != dir || !s.Given {
		t.Errorf("from PATH: %+v, %v; want folder %s", s, err, dir)
	}
}

func TestNamed(t *testing.T) {
	ps, err := Named("cluster", "containerd", "etcd")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range ps {
		got = append(got, p.Name)
	}
	if s := strings.Join(got,
		" "); s != "containerd etcd kube-apiserver kube-controller-manager kube-scheduler kubectl" {
		t.Errorf("order and members: %s", s)
	}
	if _, err := Named("nonsense"); err == nil {
		t.Error("an unknown name is accepted")
	}
}
