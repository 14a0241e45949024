package differ

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson/test/kit/criproxy"
	"keelson/test/kit/fakecri"
	"keelson/test/rig"
)

// side is one of the two nodes.
type side struct {
	index    int // 0 is ours
	node, ns string
	binary   string
	cidr     string // of its pods
	rig      *rig.Rig
	runtime  containerRuntime
	endpoint string                        // of the runtime
	fake     *fakecri.Runtime              // the fake runtime; nil on containerd
	prelude  func(container string) string // of each program
	kubelet  *rig.Kubelet
	link     *link
	client   kubernetes.Interface
	lives    *cast
	clock    *clock
	bind     func(*corev1.Pod) // sets the ports of probes and hooks
	record   *record

	once  sync.Once
	names *strings.Replacer // created once, when the agent runs

	mu     sync.Mutex
	faults map[string][]*fakecri.Injection // by life
}

// cast has the lives that are on the stage by their names.
type cast struct {
	mu sync.Mutex
	of map[string]*Life
}

// find is the life of a pod with this name. The name of a mirror pod is that of the static
// pod with the node's name as a suffix.
func (c *cast) find(pod, node string) *Life {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[strings.TrimSuffix(pod, "-"+node)]
}

func newSide(index int, node, binary string, r *rig.Rig, stage *Stage) *side {
	s := &side{
		index: index, node: node, binary: binary, rig: r, lives: stage.lives, clock: stage.clock,
		faults:  map[string][]*fakecri.Injection{},
		ns:      []string{"side-our", "side-ups"}[index],
		cidr:    []string{"127.201.0.0/16", "127.202.0.0/16"}[index],
		bind:    func(*corev1.Pod) {},
		prelude: func(string) string { return "" },
	}
	s.record = newRecord(s)
	return s
}

// useFake gives the side a fake runtime.
func (s *side) useFake() {
	s.fake = fakecri.New(fakecri.Options{
		Seed:      s.node,
		PodCIDR:   s.cidr,
		ImageRoot: s.rig.Dir,
		Handlers:  []string{"other"},
		OnCreate:  s.script,
		OnExec:    s.exec,
		OnCall:    s.record.call,
	})
	// It would be random which of many pods pulls a shared image.
	for _, name := range present {
		s.fake.AddImage(fakecri.Image{Name: name, Size: 5 << 20})
	}
	s.fake.AddImage(fakecri.Image{Name: rootless, Size: 5 << 20, UID: 1234})
	socket := filepath.Join(s.rig.Dir, "fake.sock")
	s.runtime, s.endpoint = &onFake{s.fake, socket}, "unix://"+socket
}

// useContainerd starts a containerd for the side.
func (s *side) useContainerd(ctx context.Context, archive string) error {
	c, err := startContainerd(ctx, s.rig, archive, criproxy.Options{
		OnCreate: s.script,
		OnExec:   s.exec,
		OnCall:   s.record.call,
	})
	if err != nil {
		return err
	}
	s.runtime, s.endpoint, s.prelude = c, "unix://"+c.socket, prelude
	return nil
}

// present are the images that exist on the node. Images of other names are pulled.
var present = []string{"app:1", "app:2", "app:3"}

const rootless = "rootless:1" // of a user

// open starts the agent, and begins to record its pods until the second context ends.
func (s *side) open(ctx, while context.Context, client kubernetes.Interface) (err error) {
	s.client = client
	if err := s.record.watch(while); err != nil {
		return err
	}
	if err := s.runtime.open(ctx); err != nil {
		return err
	}
	if s.link, err = newLink(ctx, s.rig.Cluster.URL); err != nil {
		return err
	}
	if err := s.makeDisk(ctx); err != nil {
		return err
	}
	s.kubelet, err = s.rig.StartKubelet(ctx, rig.KubeletConfig{
		Binary: s.binary, Node: s.node, Endpoint: s.endpoint, APIServer: s.link.url, Edit: settings,
	})
	return err
}

// settings sets the same configuration for both agents: with high rate limits and short
// periods.
func settings(k *kubeletconfig.KubeletConfiguration) {
	k.MaxPods = 500
	k.KubeAPIQPS, k.KubeAPIBurst = new(int32(500)), 1000
	k.EventRecordQPS, k.EventBurst = new(int32(500)), 1000
	k.FileCheckFrequency = metav1.Duration{Duration: time.Second}
	k.SyncFrequency = metav1.Duration{Duration: 5 * time.Second}
	k.NodeLeaseDurationSeconds = 16
	k.EvictionSoft = map[string]string{"nodefs.available": pressedBelow}
	k.EvictionSoftGracePeriod = map[string]string{"nodefs.available": "24h"}
	k.EvictionPressureTransitionPeriod = metav1.Duration{Duration: time.Second}
	k.CrashLoopBackOff.MaxContainerRestartPeriod = &metav1.Duration{Duration: 3 * time.Second}
	k.FeatureGates = map[string]bool{"KubeletCrashLoopBackOffMax": true}
}

func (s *side) close(ctx context.Context) (err error) {
	s.record.stop()
	if s.kubelet != nil {
		s.kubelet.Thaw()
		s.kubelet.Stop()
	}
	if s.runtime != nil {
		err = s.runtime.close()
	}
	if s.link != nil {
		err = errors.Join(err, s.link.close())
	}
	return errors.Join(err, s.rig.Close(ctx))
}

// errOnFakeOnly is the error of steps that cannot be taken on containerd.
var errOnFakeOnly = errors.New("only the fake runtime can")

// script gives a container the program of its life.
func (s *side) script(box *cri.PodSandboxConfig, c *cri.ContainerConfig) {
	l := s.lives.find(box.GetMetadata().GetName(), s.node)
	if l == nil {
		return
	}
	m := c.GetMetadata()
	s.writeEnvFiles(l, m.GetName(), c.GetMounts())
	c.Command, c.Args = []string{"sh", "-c", s.prelude(m.GetName()) + l.program(m.GetName(), m.GetAttempt())}, nil
}

// writeEnvFiles has an init container write the files that variables are read from. It does so
// when it is created: the runtime's containers have no files of their own.
func (s *side) writeEnvFiles(l *Life, container string, mounts []*cri.Mount) {
	for _, c := range l.Pod.Spec.InitContainers {
		if c.Name != container {
			continue
		}
		for _, volume := range written(l.Pod, c) {
			i := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume })
			for _, m := range mounts {
				if m.GetContainerPath() != c.VolumeMounts[i].MountPath {
					continue
				}
				if err := os.WriteFile(filepath.Join(m.GetHostPath(), envFile),
					[]byte("# written\nONE='1 of a file'\n"), 0o644); err != nil {
					panic(fmt.Errorf("write env file: %w", err)) // comparisons would be meaningless from here on
				}
			}
		}
	}
}

// exec answers probes and hooks: `probe KIND` fails if a step of the life has set that, and
// `hook CODE DURATION` takes this time and fails unless CODE is 0.
func (s *side) exec(e fakecri.Exec) (fakecri.ExecResult, bool) {
	if len(e.Command) < 2 {
		return fakecri.ExecResult{}, false
	}
	_, pod, _ := strings.Cut(e.Pod, "/")
	switch e.Command[0] {
	case "probe":
		l := s.lives.find(pod, s.node)
		if l != nil && s.record.track(l.Name).fails(e.Container+"/"+e.Command[1]) {
			return fakecri.ExecResult{Stdout: "not well", Code: 1}, true
		}
		return fakecri.ExecResult{Stdout: "well"}, true
	case "hook":
		res := fakecri.ExecResult{Stdout: "hooked"}
		if len(e.Command) > 2 {
			d, err := time.ParseDuration(e.Command[2])
			if err != nil {
				return fakecri.ExecResult{Err: fmt.Errorf("parse hook: %w", err)}, true
			}
			res.After = d
		}
		if e.Command[1] != "0" {
			res.Code = 7
		}
		return res, true
	}
	return fakecri.ExecResult{}, false
}

// inject adds the faults of a life to the runtime.
func (s *side) inject(l *Life) {
	pod := s.ns + "/" + s.podName(l)
	for _, f := range l.Faults {
		fault := fakecri.Fault{
			Method: f.Method, Pod: pod, Container: f.Container, Image: f.Image, Skip: f.Skip, Times: f.Times,
			Delay: time.Duration(f.DelayMS) * time.Millisecond,
		}
		if f.Message != "" {
			fault.Code, fault.Message = codes.Unknown, f.Message
		}
		in := s.fake.Inject(fault)
		s.mu.Lock()
		s.faults[l.Name] = append(s.faults[l.Name], in)
		s.mu.Unlock()
	}
}

// hangs reports whether a call to the runtime for a life's pod is delayed or takes long.
func (s *side) hangs(l *Life) bool {
	if s.runtime.busy(s.ns + "/" + s.podName(l)) {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.faults[l.Name], func(in *fakecri.Injection) bool { return in.Waiting() > 0 })
}

// podName is the name of a life's pod in the cluster and at the runtime.
func (s *side) podName(l *Life) string {
	if l.Static {
		return l.Name + "-" + s.node
	}
	return l.Name
}

// manifest is the file of a static pod.
func (s *side) manifest(l *Life) string { return filepath.Join(s.kubelet.Manifests, l.Name+".json") }

// podDir is the directory of a pod.
func (s *side) podDir(uid string) string { return filepath.Join(s.kubelet.Root, "pods", uid) }

// release removes all faults.
func (s *side) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, list := range s.faults {
		for _, in := range list {
			in.Release()
		}
	}
	clear(s.faults)
}
