package stats

import (
	"context"
	"encoding/json"
	"maps"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sandboxImageLimit bounds how long a scrape waits for the names of images.
const sandboxImageLimit = time.Second

// sandboxImages are the images that sandboxes were made of, by their IDs. Dashboards take series without an image for
// those of groups that are no containers, and pods have their network in their sandbox.
//
// containerd has the image of a sandbox in the verbose status alone. All sandboxes have the same image, which
// changes with the configuration of containerd only: one new sandbox is queried, and the others only if its image
// differs from the last one.
type sandboxImages struct {
	mu    sync.Mutex
	known map[string]string
	last  string
}

// learn finds out the images of the sandboxes with these IDs. What is not found out is asked again at the next scrape.
func (s *sandboxImages) learn(ctx context.Context, ask runtime, ids []string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, sandboxImageLimit)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	known, unknown := map[string]string{}, []string(nil)
	for _, id := range ids {
		if image, ok := s.known[id]; ok {
			known[id] = image
		} else {
			unknown = append(unknown, id)
		}
	}
	s.known = known
	usual := false // the first of them was made of the same image as the last one before
	for i, id := range unknown {
		if usual {
			known[id] = s.last
			continue
		}
		image, err := sandboxImage(ctx, ask, id)
		if err != nil {
			return maps.Clone(known), err
		}
		usual = i == 0 && image == s.last
		known[id], s.last = image, image
	}
	return maps.Clone(known), nil
}

// sandboxImage is the image of a sandbox by its verbose status; empty if the status has none.
func sandboxImage(ctx context.Context, ask runtime, id string) (string, error) {
	resp, err := ask.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	if err != nil {
		return "", err
	}
	var info struct {
		Image string `json:"image"`
	}
	if text := resp.GetInfo()["info"]; text != "" {
		err = json.Unmarshal([]byte(text), &info)
	}
	return info.Image, err
}
