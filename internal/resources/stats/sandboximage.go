package stats

import (
	"context"
	"encoding/json"
	"maps"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sandboxImageLimit bounds how long a scrape waits for image names of sandboxes.
const sandboxImageLimit = time.Second

// sandboxImages are the images of sandboxes by ID. Dashboards drop series without an image, and the network metrics of
// a pod are those of its sandbox.
//
// containerd reports the image of a sandbox in the verbose status only. All sandboxes have the same image, which
// changes with the configuration of containerd only. So one new sandbox is queried, and the others only if its image
// differs from the last one.
type sandboxImages struct {
	mu    sync.Mutex
	known map[string]string
	last  string
}

// learn returns the images of the given sandboxes. Missing ones are queried again at the next scrape.
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
	usual := false // the first new sandbox has the same image as the last known one
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

// sandboxImage returns the image of a sandbox from its verbose status, or an empty string.
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
