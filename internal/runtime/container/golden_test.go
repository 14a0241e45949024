package container

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
)

const goldenIP = "10.88.0.5"

// goldenPod returns a pod as stored by the API server, with the annotations that the agent adds.
func goldenPod(t *testing.T, name string) *v1.Pod {
	t.Helper()
	var p v1.Pod
	if err := json.Unmarshal(readGolden(t, "pod-"+name), &p); err != nil {
		t.Fatal(err)
	}
	var sandbox struct{ Annotations map[string]string }
	if err := json.Unmarshal(readGolden(t, "sandbox-"+name), &sandbox); err != nil {
		t.Fatal(err)
	}
	p.Annotations = sandbox.Annotations
	return &p
}

func readGolden(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// golden reads what upstream sent, with the placeholders filled in.
func golden(t *testing.T, name string, b bench, into proto.Message) {
	t.Helper()
	text := strings.NewReplacer(
		"<root>", b.root,
		"/var/log/pods", b.logs,
		"sha256:<hex>", b.image,
		"<pod ip>", goldenIP,
	).Replace(string(readGolden(t, name)))
	var m map[string]any
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	// Values of variables are bytes, which JSON has in base64.
	if envs, ok := m["envs"].([]any); ok {
		for _, e := range envs {
			kv := e.(map[string]any)
			b, err := json.Marshal([]byte(kv["value"].(string)))
			if err != nil {
				t.Fatal(err)
			}
			kv["value"], err = strconv.Unquote(string(b))
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	again, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := protojson.Unmarshal(again, into); err != nil {
		t.Fatal(err)
	}
}

func compare(t *testing.T, got, want proto.Message) {
	t.Helper()
	if !proto.Equal(got, want) {
		o := protojson.MarshalOptions{Multiline: true, UseProtoNames: true}
		t.Errorf("not what upstream sends\n got %s\nwant %s", o.Format(got), o.Format(want))
	}
}

func TestSandboxConfigMatchesUpstream(t *testing.T) {
	parity.ProvesPart(t, 3, "RES-04")
	parity.ProvesPart(t, 2, "RT-10")
	parity.Proves(t, "RT-11", "RT-17")
	parity.ProvesPart(t, 3, "RT-42")
	parity.ProvesPart(t, 2, "LIFE-64")
	for _, name := range []string{"guaranteed", "burstable", "besteffort"} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			b.run(t, goldenPod(t, name))
			want := &runtimeapi.PodSandboxConfig{}
			golden(t, "sandbox-"+name, b, want)
			got := b.runtime.Pods()[0].Config
			compare(t, got, want)
			if i, err := os.Stat(got.LogDirectory); err != nil || !i.IsDir() || i.Mode().Perm() != 0o755 {
				t.Errorf("log directory is %v, %v; want a directory of mode 0755", i, err)
			}
			if lines := b.events.Lines(); len(lines) > 0 {
				t.Errorf("events %q, want none", lines)
			}
		})
	}
}

// goldenMounts returns the mounts of the volumes of these pods.
func goldenMounts(b bench, p *v1.Pod, c *v1.Container) pod.Contribution {
	var out pod.Contribution
	for i, m := range c.VolumeMounts {
		v := p.Spec.Volumes[slices.IndexFunc(p.Spec.Volumes, func(v v1.Volume) bool { return v.Name == m.Name })]
		plugin, readOnly := "empty-dir", false
		switch {
		case v.ConfigMap != nil:
			plugin, readOnly = "configmap", true
		case v.Secret != nil:
			plugin, readOnly = "secret", true
		case v.DownwardAPI != nil:
			plugin, readOnly = "downward-api", true
		case v.Projected != nil:
			plugin, readOnly = "projected", true
		}
		path := filepath.Join(b.root, "pods", string(p.UID), "volumes", "kubernetes.io~"+plugin, v.Name)
		if m.SubPath != "" {
			path = filepath.Join(b.root, "pods", string(p.UID), "volume-subpaths", v.Name, c.Name, strconv.Itoa(i))
		}
		out.Mounts = append(out.Mounts, pod.Mount{
			Volume:        v.Name,
			HostPath:      path,
			ContainerPath: m.MountPath,
			ReadOnly:      readOnly || m.ReadOnly,
		})
	}
	return out
}

func TestContainerConfigMatchesUpstream(t *testing.T) {
	parity.ProvesPart(t, 2, "RT-13")
	parity.ProvesPart(t, 2, "RT-15")
	parity.Proves(t, "RT-12", "RT-14", "RES-10")
	parity.ProvesPart(t, 3, "RT-42")
	parity.ProvesPart(t, 2, "LIFE-111")
	parity.ProvesPart(t, 2, "LIFE-91")
	parity.ProvesPart(t, 2, "LIFE-29")
	for _, tc := range []struct{ pod, container string }{
		{"guaranteed", "main"},
		{"burstable", "init"},
		{"burstable", "side"},
		{"burstable", "main"},
		{"besteffort", "main"},
	} {
		t.Run(tc.pod+" "+tc.container, func(t *testing.T) {
			b := newBench(t, nil)
			p := goldenPod(t, tc.pod)
			sandbox := b.run(t, p)
			kind, c, _ := pod.Find(p, tc.container)
			s := Start{Pod: p, Container: c, Kind: kind, Sandbox: sandbox, ImageRef: b.image}
			if !p.Spec.HostNetwork {
				s.PodIPs = []string{goldenIP}
			}
			s.Mounts = func(func(string) (string, error)) (pod.Contribution, error) {
				return goldenMounts(b, p,
					c), nil
			}
			if _, failure := b.StartContainer(t.Context(), s); failure != nil {
				t.Fatal(failure)
			}
			got := b.runtime.Pods()[0].Containers[0].Config
			want := &runtimeapi.ContainerConfig{}
			golden(t, "container-"+tc.pod+"-"+tc.container, b, want)

			if i, err := os.Stat(filepath.Join(b.logs, "ref_"+p.Name+"_"+string(p.UID), c.Name)); err != nil ||
				i.Mode().Perm() != 0o755 {
				t.Errorf("log directory is %v, %v; want mode 0755", i, err)
			}
			log := got.Mounts[len(got.Mounts)-1]
			if !regexp.MustCompile(`/[0-9a-f]{8}$`).MatchString(log.HostPath) {
				t.Errorf("termination log is %s, want a name of 8 hex digits", log.HostPath)
			}
			if i, err := os.Stat(log.HostPath); err != nil || i.Mode() != 0o666 {
				t.Errorf("termination log is %v, %v; want a file of mode 0666", i, err)
			}
			log.HostPath = filepath.Join(filepath.Dir(log.HostPath), "<8 hex>")
			// Upstream's order of variables is that of a Go map.
			byKey := func(a, b *runtimeapi.KeyValue) int { return strings.Compare(a.Key, b.Key) }
			slices.SortFunc(got.Envs, byKey)
			slices.SortFunc(want.Envs, byKey)
			compare(t, got, want)
		})
	}
}
