package podsync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
	"keelson/test/kit/parity"
)

func TestWhatCannotBeRemovedIsToldOfTheNode(t *testing.T) {
	parity.Proves(t, "RT-33")
	m, n := newMeasured(t), &noted{}
	m.cfg.Events = n
	w := m.worker("u", podNamed("u", pod.SourceAPI))
	end := func(verb podplan.Verb, err error) {
		step := &task{verb: verb}
		w.tasks["x"] = step
		w.settle("x", step, err)
	}
	stuck := errors.New("remove container x: device or resource busy")
	end(podplan.Remove, stuck)
	end(podplan.Remove, stuck) // once in a row
	end(podplan.Remove, nil)
	end(podplan.RemoveSandbox, fmt.Errorf("remove sandbox x: %w", status.Error(codes.Unknown, "no")))
	end(podplan.Remove, nil)
	end(podplan.Stop, stuck)
	end(podplan.Stop, nil)
	end(podplan.Remove, status.Error(codes.Unavailable, "nobody there"))
	end(podplan.Remove, nil)
	end(podplan.Remove, context.Canceled)
	want := []string{"node Warning ContainerGCFailed remove container x: device or resource busy",
		"node Warning ContainerGCFailed remove sandbox x: rpc error: code = Unknown desc = no"}
	if !slices.Equal(n.said, want) {
		t.Errorf("said %q, want %q", n.said, want)
	}
}
