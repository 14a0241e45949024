package stats

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// making is a runtime that reports the images of its sandboxes.
type making struct {
	runtime
	images map[string]string
	asked  int
}

func (m *making) PodSandboxStatus(
	_ context.Context, req *runtimeapi.PodSandboxStatusRequest,
) (*runtimeapi.PodSandboxStatusResponse, error) {
	m.asked++
	image, ok := m.images[req.GetPodSandboxId()]
	if !ok || !req.GetVerbose() {
		return nil, errors.New("not found")
	}
	return &runtimeapi.PodSandboxStatusResponse{
		Info: map[string]string{"info": fmt.Sprintf(`{"image": %q}`, image)},
	}, nil
}

func TestSandboxImages(t *testing.T) {
	m := &making{
		images: map[string]string{
			"a": "pause:1",
			"b": "pause:2",
			"c": "pause:2",
			"d": "pause:2",
			"e": "pause:3",
			"f": "pause:2",
		},
	}
	var s sandboxImages
	for _, step := range []struct {
		name  string
		ids   []string
		want  map[string]string
		asked int
		fails bool
	}{
		{"each sandbox is requested first", []string{"a", "b"}, map[string]string{
			"a": "pause:1",
			"b": "pause:2",
		}, 2, false},
		{"once", []string{"a", "b"}, map[string]string{"a": "pause:1", "b": "pause:2"}, 0, false},
		{"one of several new ones", []string{"b", "c", "d"}, map[string]string{
			"b": "pause:2",
			"c": "pause:2",
			"d": "pause:2",
		}, 1, false},
		{"another image", []string{"e", "f"}, map[string]string{
			"e": "pause:3",
			"f": "pause:2",
		}, 2, false},
		{"unknown ones are requested again", []string{"f", "lost"}, map[string]string{"f": "pause:2"}, 1, true},
		{"each time", []string{"f", "lost"}, map[string]string{"f": "pause:2"}, 1, true},
	} {
		before := m.asked
		got, err := s.learn(t.Context(), m, step.ids)
		if !maps.Equal(got, step.want) || m.asked-before != step.asked || (err != nil) != step.fails {
			t.Errorf("%s: %v, %v, asked %d times; want %v, %d times", step.name, got, err, m.asked-before, step.want,
				step.asked)
		}
	}
}
