package podresources

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// The handler of a call panics. Its client gets an error, and other calls are answered.
func TestPanicInHandler(t *testing.T) {
	s, conn := serve(t)
	s.cfg.Container = func(types.UID, string) Resources { panic("at a question") }
	client := podresourcesv1.NewPodResourcesListerClient(conn)
	_, err := client.List(t.Context(), &podresourcesv1.ListPodResourcesRequest{})
	if status.Code(err) != codes.Internal ||
		!strings.Contains(err.Error(), "internal error, the stack is in the agent's log: at a question") {
		t.Errorf("answered %v", err)
	}
	if _, err := client.GetAllocatableResources(t.Context(),
		&podresourcesv1.AllocatableResourcesRequest{}); err != nil {
		t.Errorf("another question: %v", err)
	}
}
