package pod

import (
	"slices"
	"testing"
)

func TestAddresses(t *testing.T) {
	for _, tc := range []struct {
		name     string
		reported []string
		primary  string
		want     []string
	}{
		{"the node's family comes first", []string{"10.0.0.1", "fd00::1"}, "fd00::ff", []string{"fd00::1", "10.0.0.1"}},
		{"IPv4 comes first where the node has no address", []string{"fd00::1", "10.0.0.1"}, "",
			[]string{"10.0.0.1", "fd00::1"}},
		{"one of each family", []string{"10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2"}, "192.0.2.1",
			[]string{"10.0.0.1", "fd00::1"}},
		{"a pod without the node's family", []string{"fd00::1"}, "192.0.2.1", []string{"fd00::1"}},
		{"what is no address is dropped", []string{"x", "10.0.0.1"}, "", []string{"10.0.0.1"}},
		{"the usual form", []string{"FD00:0::1", "::ffff:10.0.0.1"}, "192.0.2.1", []string{"10.0.0.1", "fd00::1"}},
		{"none", nil, "192.0.2.1", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Addresses(tc.reported, tc.primary); !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
