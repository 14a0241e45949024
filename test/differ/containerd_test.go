package differ

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/test/rig"
)

// noLists is a runtime that cannot list.
type noLists struct {
	cri.RuntimeServiceClient
	asked int
}

var errNoLists = errors.New("no lists")

func (n *noLists) ListPodSandbox(
	context.Context, *cri.ListPodSandboxRequest, ...grpc.CallOption,
) (*cri.ListPodSandboxResponse, error) {
	n.asked++
	return nil, errNoLists
}

// TestFailedListEndsTheHistory checks that left returns the error of a failed list.
func TestFailedListEndsTheHistory(t *testing.T) {
	runtime := &noLists{}
	c := &onContainerd{rig: &rig.Rig{Dir: t.TempDir(), Runtime: &rig.Runtime{CRI: runtime}}}
	for range 2 {
		if pods := c.Pods(); len(pods) > 0 {
			t.Errorf("pods are %v", pods)
		}
	}
	if runtime.asked != 1 {
		t.Errorf("the runtime was asked %d times, want once", runtime.asked)
	}
	if _, err := c.left(); !errors.Is(err, errNoLists) {
		t.Errorf("what is left: %v, want %v", err, errNoLists)
	}
}
