package container

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
)

func TestImageVolumes(t *testing.T) {
	parity.ProvesPart(t, 3, "VOL-54")
	reg := prometheus.NewRegistry()
	b := newBench(t, func(c *Config) { c.Registry = reg })
	p := simplePod(func(*v1.Container) {})
	s := b.startOf(p, b.run(t, p))
	s.Mounts = func(func(string) (string, error)) (pod.Contribution, error) {
		return pod.Contribution{
			Mounts: []pod.Mount{
				{Volume: "data", ContainerPath: "/data", ReadOnly: true, Image: "sha256:data", ImageSubPath: "etc"},
			},
		}, nil
	}
	_, config, err := b.configure(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, m := range config.Mounts {
		if m.ContainerPath == "/data" {
			found = m.GetImage().GetImage() == "sha256:data" && m.ImageSubPath == "etc" && m.Readonly &&
				m.HostPath == ""
		}
	}
	if !found {
		t.Errorf("mounts: %v", config.Mounts)
	}
	if _, failure := b.StartContainer(t.Context(), s); failure != nil {
		t.Fatal(failure)
	}
	b.runtime.fail = map[string]error{"CreateContainer": errors.New("no such image")}
	s.Attempt++
	if _, failure := b.StartContainer(t.Context(), s); failure == nil {
		t.Fatal("started")
	}
	for name, want := range map[string]float64{"requested": 2, "mounted_succeed": 1, "mounted_errors": 1} {
		if got := counted(t, reg, "kubelet_image_volume_"+name+"_total", nil); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
