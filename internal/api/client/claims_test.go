package client

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

func TestResourceClaim(t *testing.T) {
	is := true
	claim := resourcev1.ResourceClaim{
		TypeMeta: metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceClaim"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns",
			Name:      "c",
			UID:       "u1",
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1",
				Kind:       "Pod",
				Name:       "p",
				UID:        "u2",
				Controller: &is,
			}},
		},
		Status: resourcev1.ResourceClaimStatus{
			Allocation: &resourcev1.AllocationResult{
				Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
					{
						Request: "r",
						Driver:  "gpu.example.com",
						Pool:    "a",
						Device:  "0",
					}, {Request: "s", Driver: "nic.example.com", Pool: "b", Device: "1"}}},
			},
			ReservedFor: []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: "p", UID: "u2"}},
		},
	}
	var asked []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.String()+" "+r.Header.Get("Accept"))
		w.Header().Set("Content-Type", "application/json")
		var answer any = claim
		switch r.URL.Path {
		case "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/none":
			w.WriteHeader(http.StatusNotFound)
			answer = apierrors.NewNotFound(resourcev1.Resource("resourceclaims"), "none").Status()
		case "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/odd":
			answer = []string{"nonsense"}
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	})
	got, err := c.ResourceClaim(t.Context(), "ns", "c")
	if err != nil {
		t.Fatal(err)
	}
	if got.Namespace != "ns" || got.Name != "c" || got.UID != "u1" || got.OwnerReferences[0].UID != "u2" ||
		!*got.OwnerReferences[0].Controller {
		t.Errorf("metadata %+v", got.ObjectMeta)
	}
	if r := got.Status.Allocation.Devices.Results; len(r) != 2 || r[0].Driver != "gpu.example.com" ||
		r[1].Driver != "nic.example.com" {
		t.Errorf("devices %+v", r)
	}
	if r := got.Status.ReservedFor; len(r) != 1 || r[0].UID != "u2" {
		t.Errorf("reserved for %+v", r)
	}
	claim.Status = resourcev1.ResourceClaimStatus{}
	if got, err = c.ResourceClaim(t.Context(), "ns", "c"); err != nil || got.Status.Allocation != nil ||
		got.Status.ReservedFor != nil {
		t.Errorf("of a claim without allocated devices: %+v, %v", got, err)
	}
	if _, err := c.ResourceClaim(t.Context(), "ns", "none"); !apierrors.IsNotFound(err) {
		t.Errorf("a claim that is not there: %v", err)
	}
	if _, err := c.ResourceClaim(t.Context(), "ns", "odd"); err == nil {
		t.Error("nonsense passes for a claim")
	}
	if SliceNode != resourcev1.ResourceSliceSelectorNodeName || SliceDriver != resourcev1.ResourceSliceSelectorDriver {
		t.Error("offers are selected by other fields")
	}
	if err := c.DeleteResourceSlices(t.Context(), fields.Set{SliceNode: "n1"}); err != nil {
		t.Error(err)
	}
	path := "/apis/resource.k8s.io/v1/"
	want := []string{
		"GET " + path + "namespaces/ns/resourceclaims/c application/json",
		"GET " + path + "namespaces/ns/resourceclaims/c application/json",
		"GET " + path + "namespaces/ns/resourceclaims/none application/json",
		"GET " + path + "namespaces/ns/resourceclaims/odd application/json",
		"DELETE " + path + "resourceslices?fieldSelector=spec.nodeName%3Dn1 " + ContentProtobuf + ",application/json",
	}
	if !slices.Equal(asked, want) {
		t.Errorf("asked\n%q, want\n%q", asked, want)
	}
}
