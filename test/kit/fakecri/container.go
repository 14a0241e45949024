package fakecri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// container moves created → running → exited → removed, or from created
// straight to exited when it cannot be started.
type container struct {
	id, sandboxID                    string
	config                           *cri.ContainerConfig
	image                            *image
	state                            cri.ContainerState
	createdAt, startedAt, finishedAt int64
	exitCode                         int32
	reason, message                  string
	logPath                          string
	resources                        *cri.LinuxContainerResources

	asked  bool          // to stop, within a grace period
	exited chan struct{} // closed when the state becomes exited
	proc   *process      // what the command does; nil unless running
	log    *os.File
	files  map[string][]byte // written by the command outside of any mount
	tails  []chan<- output   // attached clients
}

func itoa(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// CreateContainer makes a container whose image is present, in a sandbox that
// is ready.
func (r *Runtime) CreateContainer(
	_ context.Context, req *cri.CreateContainerRequest,
) (*cri.CreateContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.sandboxLocked(req.GetPodSandboxId())
	if !ok {
		return nil, errNotFound("failed to find sandbox id %q", req.GetPodSandboxId())
	}
	if s.state != cri.PodSandboxState_SANDBOX_READY {
		return nil, errState("sandbox container %q is not running", s.id)
	}
	meta := req.GetConfig().GetMetadata()
	if meta == nil {
		return nil, errState("container config must include metadata")
	}
	for _, other := range s.containers {
		if m := other.config.GetMetadata(); m.GetName() == meta.GetName() && m.GetAttempt() == meta.GetAttempt() {
			name := meta.GetName() + "_" + sandboxName(s.config.GetMetadata(), meta.GetAttempt())
			return nil,
				errState(
					"failed to reserve container name %q; check if another CreateContainer request is in progress: name %q is reserved for %q", name, name, other.id)
		}
	}
	ref := req.GetConfig().GetImage().GetImage()
	img, ok := r.imageLocked(ref)
	if !ok {
		return nil, errNotFound("failed to resolve image %q", ref)
	}
	for _, m := range req.GetConfig().GetMounts() {
		if err := ensureMountSource(m); err != nil {
			return nil, errState("failed to generate container spec: %v", err)
		}
	}

	c := &container{
		id:        r.newIDLocked("container"),
		sandboxID: s.id,
		config:    proto.Clone(req.GetConfig()).(*cri.ContainerConfig),
		image:     img,
		exited:    make(chan struct{}),
		files:     map[string][]byte{},
	}
	if dir := s.config.GetLogDirectory(); dir != "" && c.config.GetLogPath() != "" {
		c.logPath = filepath.Join(dir, c.config.GetLogPath())
	}
	c.resources = mergeResources(nil, c.config.GetLinux().GetResources())
	if r.opts.OnCreate != nil {
		r.opts.OnCreate(s.config, c.config)
	}
	c.createdAt = r.nowLocked()
	r.containers[c.id] = c
	s.containers = append(s.containers, c)
	r.emitLocked(c.id, s.id, cri.ContainerEventType_CONTAINER_CREATED_EVENT)
	return &cri.CreateContainerResponse{ContainerId: c.id}, nil
}

// StartContainer opens the log and lets the command run.
func (r *Runtime) StartContainer(
	_ context.Context, req *cri.StartContainerRequest,
) (*cri.StartContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.containerLocked(req.GetContainerId())
	if !ok {
		return nil, errNotFound("an error occurred when try to find container %q", req.GetContainerId())
	}
	if c.state != cri.ContainerState_CONTAINER_CREATED {
		return nil, errState("failed to set starting state for container %q: container is in %s state", c.id, c.state)
	}
	if s := r.sandboxes[c.sandboxID]; s == nil || s.state != cri.PodSandboxState_SANDBOX_READY {
		return nil, errState("sandbox container %q is not running", c.sandboxID)
	}
	prog := parse(c.argv(), c.env())
	if err := c.openLog(); err != nil {
		return nil, r.startFailedLocked(c,
			"failed to create container loggers: failed to create and open log file: "+err.Error())
	}
	if prog.startError != "" {
		return nil, r.startFailedLocked(c,
			"failed to create containerd task: failed to create shim task: OCI runtime create failed: "+prog.startError)
	}
	c.state = cri.ContainerState_CONTAINER_RUNNING
	c.startedAt = r.nowLocked()
	c.proc = &process{program: prog}
	r.emitLocked(c.id, c.sandboxID, cri.ContainerEventType_CONTAINER_STARTED_EVENT)
	r.tellLocked(c, false)
	r.advanceLocked(c, c.proc)
	return &cri.StartContainerResponse{}, nil
}

// startFailedLocked leaves the container as containerd does after a failed
// start: exited, code 128, never started.
func (r *Runtime) startFailedLocked(c *container, message string) error {
	c.closeLog()
	c.state = cri.ContainerState_CONTAINER_EXITED
	c.exitCode, c.reason, c.message = 128, "StartError", message
	c.finishedAt = r.nowLocked()
	close(c.exited)
	return errState("%s", message)
}

// StopContainer sends the stop signal, and kills the command when the timeout has
// passed. It returns when the container has exited.
func (r *Runtime) StopContainer(
	ctx context.Context, req *cri.StopContainerRequest,
) (*cri.StopContainerResponse, error) {
	r.mu.Lock()
	c, ok := r.containerLocked(req.GetContainerId())
	if !ok || c.state != cri.ContainerState_CONTAINER_RUNNING {
		r.mu.Unlock()
		if !ok && r.opts.Old {
			return nil, errNotFound("an error occurred when try to find container %q", req.GetContainerId())
		}
		return &cri.StopContainerResponse{}, nil
	}
	if req.GetTimeout() > 0 {
		c.asked = true
		r.terminateLocked(c)
		r.mu.Unlock()
		grace := time.NewTimer(time.Duration(req.GetTimeout()) * time.Second)
		defer grace.Stop()
		select {
		case <-c.exited:
			return &cri.StopContainerResponse{}, nil
		case <-ctx.Done():
			return nil, errContext("failed to stop container "+strconv.Quote(c.id), ctx.Err())
		case <-grace.C:
		}
		r.mu.Lock()
	}
	if c.state == cri.ContainerState_CONTAINER_RUNNING {
		r.exitLocked(c, 137, "", "")
	}
	r.mu.Unlock()
	return &cri.StopContainerResponse{}, nil
}

// RemoveContainer kills the container if it runs and drops it. Its log stays.
func (r *Runtime) RemoveContainer(
	_ context.Context, req *cri.RemoveContainerRequest,
) (*cri.RemoveContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, ok := r.containerLocked(req.GetContainerId()); ok {
		r.removeContainerLocked(c)
	}
	return &cri.RemoveContainerResponse{}, nil
}

func (r *Runtime) removeContainerLocked(c *container) {
	if c.state == cri.ContainerState_CONTAINER_RUNNING {
		r.exitLocked(c, 137, "", "")
	}
	delete(r.containers, c.id)
	delete(r.usage, c.id)
	if s := r.sandboxes[c.sandboxID]; s != nil {
		s.containers = slices.DeleteFunc(s.containers, func(o *container) bool { return o == c })
	}
	r.emitLocked(c.id, c.sandboxID, cri.ContainerEventType_CONTAINER_DELETED_EVENT)
}

// exitLocked ends a running container. It is the only way from running to
// exited.
func (r *Runtime) exitLocked(c *container, code int32, reason, message string) {
	c.proc.stop()
	c.proc = nil
	c.state = cri.ContainerState_CONTAINER_EXITED
	c.exitCode, c.reason, c.message = code, reason, message
	c.finishedAt = r.nowLocked()
	c.closeLog()
	for _, t := range c.tails {
		close(t)
	}
	c.tails = nil
	close(c.exited)
	r.emitLocked(c.id, c.sandboxID, cri.ContainerEventType_CONTAINER_STOPPED_EVENT)
	r.tellLocked(c, true)
}

// ContainerStatus returns the status of one container.
func (r *Runtime) ContainerStatus(
	_ context.Context, req *cri.ContainerStatusRequest,
) (*cri.ContainerStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.containerLocked(req.GetContainerId())
	if !ok {
		return nil, errNotFound("an error occurred when try to find container %q", req.GetContainerId())
	}
	res := &cri.ContainerStatusResponse{Status: r.containerStatusLocked(c)}
	if req.GetVerbose() {
		v := map[string]any{"sandboxID": c.sandboxID, "config": c.config, "pid": 0}
		if c.state == cri.ContainerState_CONTAINER_RUNNING {
			v["pid"] = pid(c.id)
		}
		res.Info = info(v)
	}
	return res, nil
}

func (r *Runtime) containerStatusLocked(c *container) *cri.ContainerStatus {
	spec, ref := c.config.GetImage(), c.image.id
	if img, ok := r.images[c.image.id]; ok { // the image may be gone by now
		if len(img.tags) > 0 {
			spec = &cri.ImageSpec{Image: img.tags[0]}
		}
		if len(img.digests) > 0 {
			ref = img.digests[0]
		}
	}
	st := &cri.ContainerStatus{
		Id:          c.id,
		Metadata:    c.config.GetMetadata(),
		State:       c.state,
		CreatedAt:   c.createdAt,
		ExitCode:    c.exitCode,
		Image:       spec,
		ImageRef:    ref,
		ImageId:     c.image.id,
		Reason:      c.reason,
		Message:     c.message,
		Labels:      c.config.GetLabels(),
		Annotations: c.config.GetAnnotations(),
		Mounts:      c.config.GetMounts(),
		LogPath:     c.logPath,
		Resources:   &cri.ContainerResources{Linux: c.resources},
		User:        c.user(),
		StopSignal:  c.config.GetStopSignal(),
	}
	if st.StopSignal == cri.Signal_RUNTIME_DEFAULT {
		st.StopSignal = cri.Signal_SIGTERM
	}
	if r.opts.Old {
		st.ImageId = ""
	}
	switch c.state {
	case cri.ContainerState_CONTAINER_RUNNING:
		st.StartedAt = c.startedAt
	case cri.ContainerState_CONTAINER_EXITED:
		st.StartedAt, st.FinishedAt = c.startedAt, c.finishedAt
		if st.Reason == "" {
			st.Reason = "Completed"
			if c.exitCode != 0 {
				st.Reason = "Error"
			}
		}
	}
	return proto.Clone(st).(*cri.ContainerStatus)
}

// user is the identity of the first process: that of the security context, or else
// that of the image, or else root.
func (c *container) user() *cri.ContainerUser {
	sc := c.config.GetLinux().GetSecurityContext()
	u := &cri.LinuxContainerUser{Uid: c.image.uid}
	if sc.GetRunAsUser() != nil {
		u.Uid = sc.GetRunAsUser().GetValue()
	}
	if sc.GetRunAsGroup() != nil {
		u.Gid = sc.GetRunAsGroup().GetValue()
	}
	u.SupplementalGroups = append([]int64{u.Gid}, sc.GetSupplementalGroups()...)
	slices.Sort(u.SupplementalGroups)
	u.SupplementalGroups = slices.Compact(u.SupplementalGroups)
	return &cri.ContainerUser{Linux: u}
}

func (r *Runtime) containerStatusesLocked(s *sandbox) []*cri.ContainerStatus {
	var list []*cri.ContainerStatus
	for _, c := range s.containers {
		list = append(list, r.containerStatusLocked(c))
	}
	return list
}

// ListContainers lists containers that match the filter.
func (r *Runtime) ListContainers(
	_ context.Context, req *cri.ListContainersRequest,
) (*cri.ListContainersResponse, error) {
	return &cri.ListContainersResponse{Containers: r.listContainers(req.GetFilter())}, nil
}

// StreamContainers is ListContainers in several messages.
func (r *Runtime) StreamContainers(
	req *cri.StreamContainersRequest, s cri.RuntimeService_StreamContainersServer,
) error {
	return sendChunks(r, r.listContainers(req.GetFilter()), func(items []*cri.Container) error {
		return s.Send(&cri.StreamContainersResponse{Containers: items})
	})
}

func (r *Runtime) listContainers(f *cri.ContainerFilter) []*cri.Container {
	r.mu.Lock()
	defer r.mu.Unlock()
	var items []*cri.Container
	for _, c := range r.sortedContainersLocked() {
		if !matchID(f.GetId(), c.id) || !matchID(f.GetPodSandboxId(), c.sandboxID) ||
			!matchLabels(f.GetLabelSelector(), c.config.GetLabels()) ||
			f.GetState() != nil && f.GetState().GetState() != c.state {
			continue
		}
		imageID := c.image.id
		if r.opts.Old {
			imageID = ""
		}
		items = append(items, proto.Clone(&cri.Container{
			Id: c.id, PodSandboxId: c.sandboxID, Metadata: c.config.GetMetadata(), Image: c.config.GetImage(),
			ImageRef: c.image.id, ImageId: imageID, State: c.state, CreatedAt: c.createdAt,
			Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(),
		}).(*cri.Container))
	}
	return items
}

// UpdateContainerResources changes the fields that the request sets.
func (r *Runtime) UpdateContainerResources(
	_ context.Context, req *cri.UpdateContainerResourcesRequest,
) (*cri.UpdateContainerResourcesResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.containerLocked(req.GetContainerId())
	if !ok {
		return nil, errNotFound("failed to find container")
	}
	c.resources = mergeResources(c.resources, req.GetLinux())
	return &cri.UpdateContainerResourcesResponse{}, nil
}

// mergeResources returns have with the fields that are set in change.
func mergeResources(have, change *cri.LinuxContainerResources) *cri.LinuxContainerResources {
	out := &cri.LinuxContainerResources{}
	if have != nil {
		out = proto.Clone(have).(*cri.LinuxContainerResources)
	}
	if change == nil {
		return out
	}
	if len(change.HugepageLimits) > 0 {
		out.HugepageLimits = nil // a list replaces, everything else merges
	}
	proto.Merge(out, change)
	return out
}

// ReopenContainerLog starts a new log file at the same path.
func (r *Runtime) ReopenContainerLog(
	_ context.Context, req *cri.ReopenContainerLogRequest,
) (*cri.ReopenContainerLogResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.containerLocked(req.GetContainerId())
	if !ok {
		return nil, errNotFound("an error occurred when try to find container %q", req.GetContainerId())
	}
	if c.state != cri.ContainerState_CONTAINER_RUNNING {
		return nil, errState("container is not running")
	}
	c.closeLog()
	if err := c.openLog(); err != nil {
		return nil, errState("failed to create and open log file: %v", err)
	}
	return &cri.ReopenContainerLogResponse{}, nil
}

// CheckpointContainer writes an archive that holds the container's
// configuration.
func (r *Runtime) CheckpointContainer(
	_ context.Context, req *cri.CheckpointContainerRequest,
) (*cri.CheckpointContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.containerLocked(req.GetContainerId())
	if !ok {
		return nil, errNotFound("an error occurred when try to find container %q", req.GetContainerId())
	}
	if c.state != cri.ContainerState_CONTAINER_RUNNING {
		return nil, errState("container %q is in %s state", c.id, c.state)
	}
	if err := writeCheckpoint(req.GetLocation(), c); err != nil {
		return nil, status.Errorf(codes.Unknown, "checkpointing container %q failed: %v", c.id, err)
	}
	return &cri.CheckpointContainerResponse{}, nil
}

func (r *Runtime) containerLocked(id string) (*container, bool) { return byID(r.containers, id) }

func (r *Runtime) sortedContainersLocked() []*container {
	list := make([]*container, 0, len(r.containers))
	for _, c := range r.containers {
		list = append(list, c)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].id < list[j].id })
	return list
}

func (c *container) name() string { return c.config.GetMetadata().GetName() }

// argv is the command line: that of the pod, or else that of the image.
func (c *container) argv() []string {
	argv := append(slices.Clone(c.config.GetCommand()), c.config.GetArgs()...)
	if len(argv) == 0 {
		return c.image.command
	}
	return argv
}

func (c *container) env() map[string]string {
	env := map[string]string{}
	for _, kv := range c.config.GetEnvs() {
		env[kv.GetKey()] = string(kv.GetValue())
	}
	return env
}

// ensureMountSource creates a directory for a mount whose source is missing,
// as containerd does.
func ensureMountSource(m *cri.Mount) error {
	if m.GetImage().GetImage() != "" {
		return nil
	}
	_, err := os.Stat(m.GetHostPath())
	if errors.Is(err, fs.ErrNotExist) {
		err = os.MkdirAll(m.GetHostPath(), 0o755)
	}
	if err != nil {
		return fmt.Errorf("failed to prepare mount source %q: %w", m.GetHostPath(), err)
	}
	return nil
}

// hostPath maps a path in the container to the host, through the mount that
// covers it best.
func (c *container) hostPath(path string) (host string, mounted bool) {
	path = filepath.Clean("/" + path)
	best := -1
	for _, m := range c.config.GetMounts() {
		at := filepath.Clean(m.GetContainerPath())
		if (path == at || strings.HasPrefix(path, strings.TrimSuffix(at, "/")+"/")) && len(at) > best &&
			m.GetHostPath() != "" {
			best = len(at)
			host = filepath.Join(m.GetHostPath(), strings.TrimPrefix(path, at))
		}
	}
	return host, best >= 0
}
