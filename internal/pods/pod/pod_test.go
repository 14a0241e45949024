package pod

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"keelson/test/kit/parity"
)

func res(cpuReq, memReq, cpuLim, memLim string) v1.ResourceRequirements {
	list := func(cpu, mem string) v1.ResourceList {
		l := v1.ResourceList{}
		if cpu != "" {
			l[v1.ResourceCPU] = resource.MustParse(cpu)
		}
		if mem != "" {
			l[v1.ResourceMemory] = resource.MustParse(mem)
		}
		return l
	}
	return v1.ResourceRequirements{Requests: list(cpuReq, memReq), Limits: list(cpuLim, memLim)}
}

func TestQOS(t *testing.T) {
	parity.Proves(t, "LIFE-119")
	asked := res("1", "1Gi", "", "")
	full := res("1", "1Gi", "1", "1Gi")
	for _, tc := range []struct {
		name string
		spec v1.PodSpec
		want v1.PodQOSClass
	}{
		{"nothing asked is best effort", v1.PodSpec{Containers: []v1.Container{{}}}, v1.PodQOSBestEffort},
		{"zero requests ask for nothing",
			v1.PodSpec{Containers: []v1.Container{{Resources: res("0", "", "", "")}}}, v1.PodQOSBestEffort},
		{"equal requests and limits are guaranteed",
			v1.PodSpec{Containers: []v1.Container{{Resources: full}}}, v1.PodQOSGuaranteed},
		{"limits alone are guaranteed",
			v1.PodSpec{Containers: []v1.Container{{Resources: res("", "", "1", "1Gi")}}}, v1.PodQOSGuaranteed},
		{"a missing memory limit is burstable",
			v1.PodSpec{Containers: []v1.Container{{Resources: res("1", "", "1", "")}}}, v1.PodQOSBurstable},
		{"an init container without limits takes guaranteed away",
			v1.PodSpec{
				InitContainers: []v1.Container{{}},
				Containers:     []v1.Container{{Resources: full}},
			}, v1.PodQOSBurstable},
		{"requests below limits are burstable",
			v1.PodSpec{Containers: []v1.Container{{Resources: res("1", "1Gi", "2", "1Gi")}}}, v1.PodQOSBurstable},
		{"memory requested below its limit is burstable",
			v1.PodSpec{Containers: []v1.Container{{Resources: res("1", "1Gi", "1", "2Gi")}}}, v1.PodQOSBurstable},
		{"init containers count as others do", v1.PodSpec{
			InitContainers: []v1.Container{{Resources: full}},
			Containers:     []v1.Container{{Resources: full}},
		}, v1.PodQOSGuaranteed},
		{"pod-level resources replace those of containers",
			v1.PodSpec{Resources: &full, Containers: []v1.Container{{}}}, v1.PodQOSGuaranteed},
		{"pod-level requests take guaranteed away",
			v1.PodSpec{Resources: &asked, Containers: []v1.Container{{Resources: full}}}, v1.PodQOSBurstable},
		{"one container of many without limits takes guaranteed away",
			v1.PodSpec{Containers: []v1.Container{{Resources: full}, {}}}, v1.PodQOSBurstable},
		{"ephemeral containers do not count", v1.PodSpec{
			Containers:          []v1.Container{{Resources: full}},
			EphemeralContainers: []v1.EphemeralContainer{{}},
		}, v1.PodQOSGuaranteed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := QOS(&v1.Pod{Spec: tc.spec}); got != tc.want {
				t.Errorf("QOS = %s, want %s", got, tc.want)
			}
		})
	}
}

func TestGrace(t *testing.T) {
	parity.ProvesPart(t, 3, "LIFE-11")
	now := metav1.Now()
	for _, tc := range []struct {
		name string
		pod  v1.Pod
		want time.Duration
	}{
		{"default", v1.Pod{}, 30 * time.Second},
		{"from the specification",
			v1.Pod{Spec: v1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](5)}}, 5 * time.Second},
		{"a deletion's own wins", v1.Pod{
			ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now, DeletionGracePeriodSeconds: ptr.To[int64](3)},
			Spec:       v1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](50)},
		}, 3 * time.Second},
		{"never below a second", v1.Pod{Spec: v1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](0)}}, time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Grace(&tc.pod); got != tc.want {
				t.Errorf("Grace = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestGraceFromAnnotations(t *testing.T) {
	const deletion, termination = AnnotationDeletionGracePeriod, AnnotationTerminationGracePeriod
	for _, tc := range []struct {
		name        string
		annotations map[string]string
		want        time.Duration
		ok          bool
	}{
		{"nothing is written", nil, 0, false},
		{"the pod's", map[string]string{termination: "20"}, 20 * time.Second, true},
		{"a deletion's own wins", map[string]string{deletion: "4", termination: "20"}, 4 * time.Second, true},
		{"never below a second", map[string]string{termination: "0"}, time.Second, true},
		{"what cannot be read", map[string]string{deletion: "x", termination: "1e9"}, 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, ok := GraceFromAnnotations(tc.annotations); got != tc.want || ok != tc.ok {
				t.Errorf("GraceFromAnnotations = %v, %v; want %v, %v", got, ok, tc.want, tc.ok)
			}
		})
	}
}

func TestContainersInOrderWithKinds(t *testing.T) {
	p := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{
			{Name: "setup"},
			{Name: "proxy", RestartPolicy: ptr.To(v1.ContainerRestartPolicyAlways)},
		},
		Containers: []v1.Container{{Name: "app"}},
		EphemeralContainers: []v1.EphemeralContainer{
			{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}},
		},
	}}
	want := []struct {
		name, path string
		kind       Kind
	}{
		{"setup", "spec.initContainers{setup}", Init},
		{"proxy", "spec.initContainers{proxy}", Sidecar},
		{"app", "spec.containers{app}", Regular},
		{"debug", "spec.ephemeralContainers{debug}", Ephemeral},
	}
	i := 0
	for k, c := range Containers(p) {
		if w := want[i]; k != w.kind || c.Name != w.name || FieldPath(p, c.Name) != w.path {
			t.Errorf("container %d = %v %s %s, want %v", i, k, c.Name, FieldPath(p, c.Name), w)
		}
		i++
	}
	if i != len(want) {
		t.Errorf("saw %d containers, want %d", i, len(want))
	}
}
