package pod

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestFieldValue(t *testing.T) {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: "shop", UID: "u-1",
			Labels:      map[string]string{"b": "2", "a": "1"},
			Annotations: map[string]string{"Multi": "line one\nline \"two\"", "k.io/x": ""},
		},
		Spec: v1.PodSpec{NodeName: "n1", ServiceAccountName: "robot"},
	}
	for path, want := range map[string]string{
		"metadata.name":                  "web",
		"metadata.namespace":             "shop",
		"metadata.uid":                   "u-1",
		"metadata.labels":                "a=\"1\"\nb=\"2\"",
		"metadata.annotations":           "Multi=\"line one\\nline \\\"two\\\"\"\nk.io/x=\"\"",
		"metadata.labels['a']":           "1",
		"metadata.labels['gone']":        "",
		"metadata.annotations['Multi']":  "line one\nline \"two\"",
		"metadata.annotations['k.io/x']": "",
		"spec.nodeName":                  "n1",
		"spec.serviceAccountName":        "robot",
	} {
		if got, err := FieldValue(p, path); err != nil || got != want {
			t.Errorf("FieldValue(%s) = %q, %v, want %q", path, got, err, want)
		}
	}
	for path, want := range map[string]string{
		"spec.hostname":              "unsupported fieldPath: spec.hostname",
		"metadata.labels['']":        "invalid key subscript",
		"metadata.annotations['a/']": "invalid key subscript",
		"metadata.name['a']":         "does not support subscript",
		"['a']":                      "unsupported fieldPath",
	} {
		if got, err := FieldValue(p, path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("FieldValue(%s) = %q, %v, want an error with %q", path, got, err, want)
		}
	}
	if got, err := FieldValue(&v1.Pod{}, "metadata.labels"); err != nil || got != "" {
		t.Errorf("no labels are shown as %q, %v, want nothing", got, err)
	}
}

func TestResourceValue(t *testing.T) {
	p := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{{Name: "setup", Resources: res("", "", "1500m", "")}},
		Containers: []v1.Container{
			{Name: "app", Resources: res("250m", "32Mi", "1250m", "64Mi")},
			{Name: "free"},
		},
	}}
	p.Spec.Containers[0].Resources.Limits["hugepages-2Mi"] = resource.MustParse("4Mi")
	node := v1.ResourceList{
		v1.ResourceCPU:              resource.MustParse("4"),
		v1.ResourceMemory:           resource.MustParse("1Gi"),
		v1.ResourceEphemeralStorage: resource.MustParse("10Gi"),
	}
	for _, tc := range []struct{ name, in, container, resource, divisor, want string }{
		{"cores are rounded up", "app", "", "limits.cpu", "", "2"},
		{"a milli divisor counts milli-cores", "app", "", "limits.cpu", "1m", "1250"},
		{"memory is in bytes", "app", "", "limits.memory", "0", "67108864"},
		{"memory in mebibytes", "app", "", "requests.memory", "1Mi", "32"},
		{"a fraction of the divisor rounds up", "app", "", "requests.memory", "1Gi", "1"},
		{"the selector's container wins", "app", "setup", "limits.cpu", "1m", "1500"},
		{"no limit is the node's", "free", "", "limits.cpu", "", "4"},
		{"no storage limit is the node's", "app", "", "limits.ephemeral-storage", "1Gi", "10"},
		{"no request is zero", "free", "", "requests.cpu", "1m", "0"},
		{"huge pages", "app", "", "limits.hugepages-2Mi", "1Mi", "4"},
		{"no huge pages is zero", "free", "", "limits.hugepages-2Mi", "", "0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sel := &v1.ResourceFieldSelector{ContainerName: tc.container, Resource: tc.resource}
			if tc.divisor != "" {
				sel.Divisor = resource.MustParse(tc.divisor)
			}
			if got, err := ResourceValue(p, tc.in, sel, node); err != nil || got != tc.want {
				t.Errorf("ResourceValue = %q, %v, want %q", got, err, tc.want)
			}
		})
	}
	t.Run("the pod's own limit bounds its containers", func(t *testing.T) {
		p := p.DeepCopy()
		p.Spec.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse("3")}}
		if got, err := ResourceValue(p, "free", &v1.ResourceFieldSelector{Resource: "limits.cpu"}, node); err != nil ||
			got != "3" {
			t.Errorf("ResourceValue = %q, %v, want 3", got, err)
		}
	})
	for _, bad := range []string{"limits.pods", "cpu", ""} {
		if got, err := ResourceValue(p, "app", &v1.ResourceFieldSelector{Resource: bad}, node); err == nil {
			t.Errorf("ResourceValue of %q = %q, want an error", bad, got)
		}
	}
	if _, err := ResourceValue(p, "ghost", &v1.ResourceFieldSelector{Resource: "limits.cpu"}, node); err == nil {
		t.Error("an unknown container has a value")
	}
}
