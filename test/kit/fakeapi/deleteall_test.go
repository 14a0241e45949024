package fakeapi

import (
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDeleteCollectionTakesWhatIsSelected(t *testing.T) {
	slices := New().Client().ResourceV1().ResourceSlices()
	here, there := "n1", "n2"
	for name, spec := range map[string]resourcev1.ResourceSliceSpec{
		"a": {
			Driver:   "x",
			NodeName: &here,
		}, "b": {Driver: "y", NodeName: &here}, "c": {Driver: "x", NodeName: &there}, "d": {Driver: "x"},
	} {
		if _, err := slices.Create(t.Context(), &resourcev1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       spec,
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct{ fields, left string }{{"spec.nodeName=n1,spec.driver=x", "bcd"},
		{"spec.nodeName=n1", "cd"}} {
		if err := slices.DeleteCollection(t.Context(), metav1.DeleteOptions{},
			metav1.ListOptions{FieldSelector: step.fields}); err != nil {
			t.Fatal(err)
		}
		list, err := slices.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		left := ""
		for _, s := range list.Items {
			left += s.Name
		}
		if left != step.left {
			t.Errorf("after %s there is left %q, want %q", step.fields, left, step.left)
		}
	}
}
