package eviction

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"keelson/test/kit/parity"
)

func TestBreaches(t *testing.T) {
	parity.Proves(t, "EVIC-25", "EVIC-26", "EVIC-27")
	limit := func(p *v1.Pod, container int, text string) {
		for len(p.Spec.Containers) <= container {
			p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: "other"})
		}
		p.Spec.Containers[container].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: amount(text)}
	}
	volume := func(p *v1.Pod, name, text string) {
		e := &v1.EmptyDirVolumeSource{}
		if text != "" {
			q := resource.MustParse(text)
			e.SizeLimit = &q
		}
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: e}})
	}
	part := func(name string, logs, layer uint64) ContainerUse {
		return ContainerUse{Name: name, Logs: &Space{Bytes: logs << 20}, Layer: &Space{Bytes: layer << 20}}
	}
	holds := func(n uint64) map[string]VolumeUse { return map[string]VolumeUse{"v": {Space{Bytes: n << 20}, true}} }
	for name, tc := range map[string]struct {
		pod     func(*v1.Pod)
		use     Use
		disks   Disks
		signal  Signal
		message string
	}{
		"a volume over its limit": {func(p *v1.Pod) { volume(p, "v", "10Mi") }, Use{Volumes: holds(11)}, Disks{},
			"emptydirfs.limit", `Usage of EmptyDir volume "v" exceeds the limit "10Mi". `},
		"a volume at its limit": {func(p *v1.Pod) { volume(p, "v", "10Mi") },
			Use{Volumes: holds(10)}, Disks{}, "", ""},
		"a volume without limit": {func(p *v1.Pod) { volume(p, "v", "") }, Use{Volumes: holds(900)}, Disks{}, "",
			""},
		"a volume that is not measured": {func(p *v1.Pod) { volume(p, "v", "10Mi") }, Use{}, Disks{}, "", ""},
		"a limit of zero is no limit": {func(p *v1.Pod) { volume(p, "v", "0") }, Use{Volumes: holds(9)}, Disks{}, "",
			""},
		"logs and layer count for a container, if the other one has no limit": {func(p *v1.Pod) {
			limit(p, 0,
				"10Mi")
			limit(p, 1, "90Mi")
		},
			Use{Containers: []ContainerUse{part("main", 6, 5), part("other", 20, 20)}}, Disks{},
			"ephemeralcontainerfs.limit", `Container main exceeded its local ephemeral storage limit "10Mi". `},
		"within": {func(p *v1.Pod) { limit(p, 0, "10Mi") },
			Use{Containers: []ContainerUse{part("main", 5, 5)}}, Disks{}, "", ""},
		"a layer on a disk of its own does not count": {func(p *v1.Pod) { limit(p, 0, "10Mi"); limit(p, 1, "900Mi") },
			Use{Containers: []ContainerUse{part("main", 5, 500)}}, Disks{Images: true}, "", ""},
		"logs count with a separate image disk": {func(p *v1.Pod) { limit(p, 0, "10Mi"); limit(p, 1, "90Mi") },
			Use{Containers: []ContainerUse{part("main", 11, 5)}}, Disks{Images: true},
			"ephemeralcontainerfs.limit", `Container main exceeded its local ephemeral storage limit "10Mi". `},
		"all containers and volumes together": {func(p *v1.Pod) {
			limit(p, 0,
				"10Mi")
			limit(p, 1, "10Mi")
			volume(p, "v", "")
		},
			Use{Containers: []ContainerUse{part("main", 3, 3), part("other", 3, 3)}, Volumes: holds(9)}, Disks{},
			"ephemeralpodfs.limit", "Pod ephemeral local storage usage exceeds the total limit of containers 20Mi. "},
		"files that the agent keeps for the pod": {func(p *v1.Pod) { limit(p, 0, "10Mi") }, Use{
			Containers: []ContainerUse{part("main", 5, 5)},
			Own:        Space{Bytes: 1},
		}, Disks{},
			"ephemeralpodfs.limit", "Pod ephemeral local storage usage exceeds the total limit of containers 10Mi. "},
		"all layers count for the pod, wherever they are": {func(p *v1.Pod) {
			limit(p, 0, "10Mi")
			limit(p,
				1, "10Mi")
		},
			Use{Containers: []ContainerUse{part("main", 1, 11), part("other", 1, 8)}}, Disks{Images: true},
			"ephemeralpodfs.limit", "Pod ephemeral local storage usage exceeds the total limit of containers 20Mi. "},
		"a layer apart from the images does not count for its container": {func(p *v1.Pod) {
			limit(p, 0, "10Mi")
			limit(p, 1, "90Mi")
		}, Use{Containers: []ContainerUse{part("main", 5, 50)}}, Disks{Images: true, Containers: true}, "", ""},
		"init containers and sidecars have no container limit": {func(p *v1.Pod) {
			limit(p, 0, "90Mi")
			always := v1.ContainerRestartPolicyAlways
			side := v1.Container{Name: "side", RestartPolicy: &always}
			side.Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: amount("10Mi")}
			p.Spec.InitContainers = append(p.Spec.InitContainers, side)
		}, Use{Containers: []ContainerUse{part("side", 6, 5)}}, Disks{}, "", ""},
		"volumes of other pods do not count": {func(p *v1.Pod) { limit(p, 0, "10Mi") }, Use{
			Volumes: map[string]VolumeUse{"claim": {Space{Bytes: 1 << 40}, false}},
		}, Disks{}, "", ""},
		"no limit at all": {func(*v1.Pod) {}, Use{
			Containers: []ContainerUse{part("main", 500, 500)},
			Volumes:    holds(500),
		}, Disks{}, "", ""},
	} {
		p := asks("p", 0, v1.ResourceMemory, "")
		tc.pod(p)
		tc.use.At = now
		got := Breaches([]Candidate{{p, tc.use}}, tc.disks, now)
		switch {
		case tc.message == "" && len(got) > 0:
			t.Errorf("%s: %q", name, got[0].Message)
		case tc.message != "" && (len(got) != 1 || got[0].Message != tc.message || got[0].Signal != tc.signal):
			t.Errorf("%s: %+v", name, got)
		}
		if tc.message != "" && !Limited(p) {
			t.Errorf("%s: the pod does not count as limited", name)
		}
		tc.use.At = after(-31)
		if got := Breaches([]Candidate{{p, tc.use}}, tc.disks, now); len(got) > 0 {
			t.Errorf("%s: by an old measurement: %q", name, got[0].Message)
		}
	}
}
