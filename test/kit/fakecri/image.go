package fakecri

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/distribution/reference"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Image describes an image to be present from the start.
type Image struct {
	Name     string // as a pod names it
	Size     uint64
	UID      int64
	Username string
	Pinned   bool
	Command  []string // run when a container names no command
	Local    bool     // imported, not pulled: it has no repository digest
}

// Credentials are the user and password that pulls of a private image need.
type Credentials struct{ Username, Password string }

// Pull is a PullImage call that got as far as the registry.
type Pull struct {
	Image   string
	Handler string
	Auth    *cri.AuthConfig // nil if none was sent
	Pod     string          // namespace/name of the sandbox it was pulled for
	Refused bool
}

type image struct {
	id            string
	tags, digests []string
	size          uint64
	uid           int64
	username      string
	pinned        bool
	command       []string
}

// AddImage puts an image on the node, as an import would.
func (r *Runtime) AddImage(in Image) (id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.addImageLocked(in).id
}

func (r *Runtime) addImageLocked(in Image) *image {
	name := normal(in.Name)
	repo, tag, _ := cutRef(name)
	sum := sha256.Sum256([]byte("image " + name))
	id := "sha256:" + hex.EncodeToString(sum[:])
	img := r.images[id]
	if img == nil {
		img = &image{id: id}
		r.images[id] = img
	}
	img.size, img.uid, img.username = max(in.Size, 1), in.UID, in.Username
	img.pinned, img.command = in.Pinned, in.Command
	if tag != "" && !slices.Contains(img.tags, name) {
		img.tags = append(img.tags, name)
	}
	if !in.Local && len(img.digests) == 0 {
		manifest := sha256.Sum256([]byte("manifest " + name))
		digest := repo + "@sha256:" + hex.EncodeToString(manifest[:])
		if strings.Contains(name, "@") {
			digest = name
		}
		img.digests = append(img.digests, digest)
	}
	return img
}

// Protect makes pulls of an image fail unless they have these credentials.
func (r *Runtime) Protect(name string, c Credentials) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.private[normal(name)] = c
}

// Pulls returns the pulls so far, oldest first.
func (r *Runtime) Pulls() []Pull {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.pulls)
}

// PullImage fetches an image from a registry that has every image.
func (r *Runtime) PullImage(_ context.Context, req *cri.PullImageRequest) (*cri.PullImageResponse, error) {
	name := req.GetImage().GetImage()
	if _, err := reference.ParseDockerRef(name); err != nil {
		return nil, errState("failed to parse image reference %q: %v", name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	pull := Pull{Image: name, Handler: req.GetImage().GetRuntimeHandler()}
	if req.GetAuth() != nil {
		pull.Auth = proto.Clone(req.GetAuth()).(*cri.AuthConfig)
	}
	if m := req.GetSandboxConfig().GetMetadata(); m != nil {
		pull.Pod = m.GetNamespace() + "/" + m.GetName()
	}
	if want, private := r.private[normal(name)]; private && presented(req.GetAuth()) != want {
		pull.Refused = true
		r.pulls = append(r.pulls, pull)
		return nil, status.Errorf(codes.Unknown,
			"failed to pull and unpack image %q: failed to resolve reference %q: pull access denied, repository does not exist or may require authorization: server message: insufficient_scope: authorization failed", normal(name), normal(name))
	}
	r.pulls = append(r.pulls, pull)
	img, ok := r.imageLocked(name)
	if !ok || len(img.digests) == 0 {
		img = r.addImageLocked(Image{Name: name, Size: 1 << 20})
	}
	return &cri.PullImageResponse{ImageRef: img.id}, nil
}

// presented returns the user and password of a pull.
func presented(a *cri.AuthConfig) Credentials {
	if a.GetAuth() != "" {
		if raw, err := base64.StdEncoding.DecodeString(a.GetAuth()); err == nil {
			user, password, _ := strings.Cut(string(raw), ":")
			return Credentials{user, password}
		}
	}
	return Credentials{a.GetUsername(), a.GetPassword()}
}

// ListImages lists images, or the one that the filter names.
func (r *Runtime) ListImages(_ context.Context, req *cri.ListImagesRequest) (*cri.ListImagesResponse, error) {
	return &cri.ListImagesResponse{Images: r.listImages(req.GetFilter())}, nil
}

// StreamImages is ListImages in several messages.
func (r *Runtime) StreamImages(req *cri.StreamImagesRequest, s cri.ImageService_StreamImagesServer) error {
	return sendChunks(r, r.listImages(req.GetFilter()), func(items []*cri.Image) error {
		return s.Send(&cri.StreamImagesResponse{Images: items})
	})
}

func (r *Runtime) listImages(f *cri.ImageFilter) []*cri.Image {
	r.mu.Lock()
	defer r.mu.Unlock()
	if name := f.GetImage().GetImage(); name != "" {
		if img, ok := r.imageLocked(name); ok {
			return []*cri.Image{img.cri()}
		}
		return nil
	}
	var list []*cri.Image
	for _, img := range r.images {
		list = append(list, img.cri())
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Id < list[j].Id })
	return list
}

// ImageStatus describes an image, or nothing when it is not there.
func (r *Runtime) ImageStatus(_ context.Context, req *cri.ImageStatusRequest) (*cri.ImageStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	img, ok := r.imageLocked(req.GetImage().GetImage())
	if !ok {
		return &cri.ImageStatusResponse{}, nil
	}
	res := &cri.ImageStatusResponse{Image: img.cri()}
	if req.GetVerbose() {
		res.Info = info(map[string]any{"imageSpec": map[string]any{"config": map[string]any{"Cmd": img.command}}})
	}
	return res, nil
}

// RemoveImage removes an image under all its names.
func (r *Runtime) RemoveImage(_ context.Context, req *cri.RemoveImageRequest) (*cri.RemoveImageResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if img, ok := r.imageLocked(req.GetImage().GetImage()); ok {
		delete(r.images, img.id)
	}
	return &cri.RemoveImageResponse{}, nil
}

// ImageFsInfo adds up the images.
func (r *Runtime) ImageFsInfo(context.Context, *cri.ImageFsInfoRequest) (*cri.ImageFsInfoResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var used uint64
	for _, img := range r.images {
		used += img.size
	}
	return &cri.ImageFsInfoResponse{ImageFilesystems: []*cri.FilesystemUsage{{
		Timestamp:  time.Now().UnixNano(),
		FsId:       &cri.FilesystemIdentifier{Mountpoint: filepath.Clean(r.opts.ImageRoot)},
		UsedBytes:  &cri.UInt64Value{Value: used},
		InodesUsed: &cri.UInt64Value{Value: uint64(100 * len(r.images))},
	}}}, nil
}

func (img *image) cri() *cri.Image {
	out := &cri.Image{
		Id: img.id, RepoTags: slices.Clone(img.tags), RepoDigests: slices.Clone(img.digests),
		Size: img.size, Username: img.username, Pinned: img.pinned,
	}
	if img.uid != 0 {
		out.Uid = &cri.Int64Value{Value: img.uid}
	}
	return out
}

// imageLocked finds an image by id, by a prefix of it, by tag or by digest.
func (r *Runtime) imageLocked(name string) (*image, bool) {
	if name == "" {
		return nil, false
	}
	if img, ok := r.images[name]; ok {
		return img, true
	}
	if img, ok := r.images["sha256:"+name]; ok {
		return img, true
	}
	full := normal(name)
	for _, img := range r.images {
		if slices.Contains(img.tags, full) || slices.Contains(img.digests, full) {
			return img, true
		}
	}
	if len(name) >= 6 && strings.Trim(strings.TrimPrefix(name, "sha256:"), "0123456789abcdef") == "" {
		return byID(r.images, "sha256:"+strings.TrimPrefix(name, "sha256:"))
	}
	return nil, false
}

// normal spells a reference out: busybox is docker.io/library/busybox:latest.
func normal(name string) string {
	ref, err := reference.ParseDockerRef(name)
	if err != nil {
		return name
	}
	return ref.String()
}

func cutRef(full string) (repo, tag, digest string) {
	repo, digest, _ = strings.Cut(full, "@")
	if i := strings.LastIndexByte(repo, ':'); i > strings.LastIndexByte(repo, '/') {
		repo, tag = repo[:i], repo[i+1:]
	}
	return repo, tag, digest
}

// sendChunks streams a list in several messages.
func sendChunks[T any](r *Runtime, items []T, send func([]T) error) error {
	if r.opts.NoListStreams {
		return status.Error(codes.Unimplemented, "list streaming is not implemented")
	}
	for chunk := range slices.Chunk(items, 100) {
		if err := send(chunk); err != nil {
			return fmt.Errorf("send list: %w", err)
		}
	}
	return nil
}
