package container

import (
	"context"
	"fmt"
	"strings"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// userCache caches the user of images by digest. The content of a digest never changes, so entries
// never become stale; the cache is cleared when it is full.
type userCache struct {
	mu    sync.Mutex
	users map[string]imageUser
}

const maxCachedUsers = 1000

func (u *userCache) get(ref string) (imageUser, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	user, ok := u.users[ref]
	return user, ok
}

func (u *userCache) put(ref string, user imageUser) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.users == nil || len(u.users) >= maxCachedUsers {
		u.users = map[string]imageUser{}
	}
	u.users[ref] = user
}

// imageUser asks the runtime for the user of an image.
func (r *Runner) imageUser(ctx context.Context, ref string) (imageUser, error) {
	if user, ok := r.users.get(ref); ok {
		return user, nil
	}
	resp, err := r.cfg.Runtime.ImageStatus(ctx,
		&runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
	if err != nil {
		return imageUser{}, fmt.Errorf("read the user of image %s: %w", ref, err)
	}
	user := imageUser{uid: new(int64)}
	img := resp.GetImage()
	switch {
	case img.GetUid() != nil:
		*user.uid = img.GetUid().GetValue()
	case img.GetUsername() != "":
		user = imageUser{name: img.GetUsername()}
	}
	if img != nil && strings.Contains(ref, "sha256:") {
		r.users.put(ref, user)
	}
	return user, nil
}
