package container

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"keelson/internal/pods/pod"
	"keelson/test/kit/fakecri"
	"keelson/test/kit/parity"
)

func TestStartContainerEvents(t *testing.T) {
	parity.ProvesPart(t, 2, "LIFE-50")
	b := newBench(t, nil)
	p := simplePod(nil)
	if _, failure := b.StartContainer(t.Context(), b.startOf(p, b.run(t, p))); failure != nil {
		t.Fatal(failure)
	}
	want := []string{"web/main Normal Created Container created", "web/main Normal Started Container started"}
	if got := b.events.Lines(); !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
	if got := b.runtime.Pods()[0].String(); got != "ns/web ready: main#0 running" {
		t.Errorf("runtime has %s", got)
	}
}

func TestStartContainerFailures(t *testing.T) {
	parity.ProvesPart(t, 2, "LIFE-50")
	parity.Proves(t, "LIFE-85")
	parity.ProvesPart(t, 3, "LIFE-110")
	parity.ProvesPart(t, 2, "LIFE-88")
	for _, tc := range []struct {
		name    string
		change  func(*v1.Container)
		user    string // of the image; "" means root
		fail    error  // of CreateContainer
		mounts  func(expand func(string) (string, error)) (pod.Contribution, error)
		reason  string
		message string
		events  []string // before the last one, which contains the message
		holds   string   // containers in the runtime afterwards
	}{
		{
			name:    "a missing secret",
			change:  func(c *v1.Container) { c.Env = []v1.EnvVar{{Name: "A", ValueFrom: secretKey("no", "k", false)}} },
			reason:  "CreateContainerConfigError",
			message: `secrets "no" not found`,
			holds:   "ns/web ready",
		},
		{
			name:    "a missing config map",
			change:  func(c *v1.Container) { c.Env = []v1.EnvVar{{Name: "A", ValueFrom: configKey("no", "k", false)}} },
			reason:  "CreateContainerConfigError",
			message: `configmaps "no" not found`,
			holds:   "ns/web ready",
		},
		{
			name:    "a key that a config map does not have",
			change:  func(c *v1.Container) { c.Env = []v1.EnvVar{{Name: "A", ValueFrom: configKey("cm", "k", false)}} },
			reason:  "CreateContainerConfigError",
			message: "couldn't find key k in ConfigMap ns/cm",
			holds:   "ns/web ready",
		},
		{
			name:    "a key that a secret does not have",
			change:  func(c *v1.Container) { c.Env = []v1.EnvVar{{Name: "A", ValueFrom: secretKey("sec", "k", false)}} },
			reason:  "CreateContainerConfigError",
			message: "couldn't find key k in Secret ns/sec",
			holds:   "ns/web ready",
		},
		{
			name:    "runAsNonRoot with an image that runs as root",
			change:  func(c *v1.Container) { c.SecurityContext = &v1.SecurityContext{RunAsNonRoot: ptr.To(true)} },
			reason:  "CreateContainerConfigError",
			message: `container has runAsNonRoot and image will run as root (pod: "web_ns(uid-1)", container: main)`,
			holds:   "ns/web ready",
		},
		{
			name:   "a user name, which may be root",
			change: func(c *v1.Container) { c.SecurityContext = &v1.SecurityContext{RunAsNonRoot: ptr.To(true)} },
			user:   "www",
			reason: "CreateContainerConfigError",
			message: `container has runAsNonRoot and image has non-numeric user (www), cannot verify user is non-root ` +
				`(pod: "web_ns(uid-1)", container: main)`,
			holds: "ns/web ready",
		},
		{
			name: "a path that names no variable",
			mounts: func(expand func(string) (string, error)) (pod.Contribution, error) {
				_, err := expand("$(NO)")
				return pod.Contribution{}, err
			},
			reason:  "CreateContainerConfigError",
			message: `missing value for NO`,
			holds:   "ns/web ready",
		},
		{
			name:    "a runtime that cannot",
			fail:    fmt.Errorf("create container main: %w", status.Error(codes.Unknown, "no space left")),
			reason:  "CreateContainerError",
			message: "no space left",
			holds:   "ns/web ready",
		},
		{
			name:    "a command that is not there",
			change:  func(c *v1.Container) { c.Command = []string{"start-error", "no such file"} },
			reason:  "RunContainerError",
			events:  []string{"web/main Normal Created Container created"},
			message: "no such file",
			holds:   "ns/web ready: main#0 exited 128",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, func(c *Config) {
				c.Objects = fakeObjects{
					maps:    map[string]map[string]string{"ns/cm": {}},
					secrets: map[string]map[string]string{"ns/sec": {}},
				}
			})
			p := simplePod(tc.change)
			s := b.startOf(p, b.run(t, p))
			s.Mounts = tc.mounts
			if tc.user != "" {
				b.runtime.AddImage(fakecri.Image{Name: "named", Username: tc.user})
				s.ImageRef = "named"
			}
			b.runtime.fail["CreateContainer"] = tc.fail
			id, failure := b.StartContainer(t.Context(), s)
			if failure == nil || failure.Reason != tc.reason || !strings.Contains(failure.Message, tc.message) ||
				strings.Contains(failure.Message, "rpc error") {
				t.Fatalf("got %v, want %s: %s", failure, tc.reason, tc.message)
			}
			if want := append(tc.events,
				"web/main Warning Failed Error: "+failure.Message); !slices.Equal(b.events.Lines(), want) {
				t.Errorf("events %q, want %q", b.events.Lines(), want)
			}
			got := b.runtime.Pods()[0]
			if got.String() != tc.holds {
				t.Errorf("runtime holds %s, want %s", got, tc.holds)
			}
			if n := len(terminationFiles(t, b, p)); n != len(got.Containers) {
				t.Errorf("%d termination message files for %d containers", n, len(got.Containers))
			}
			if (id != "") != (len(got.Containers) > 0) {
				t.Errorf("returned id %q while the runtime holds %d containers", id, len(got.Containers))
			}
		})
	}
}

// TestEventsOmitContainerID: the status has the runtime's message; in events the container's name
// replaces the ID, so that they can be aggregated.
func TestEventsOmitContainerID(t *testing.T) {
	b := newBench(t, nil)
	p := simplePod(nil)
	s := b.startOf(p, b.run(t, p))
	b.runtime.fail["StartContainer"] = errors.New("no such file")
	id, failure := b.StartContainer(t.Context(), s)
	if failure == nil || failure.Message != "no such file: container "+id {
		t.Fatalf("id %q, failure %v", id, failure)
	}
	want := []string{"web/main Normal Created Container created",
		"web/main Warning Failed Error: no such file: container main"}
	if !slices.Equal(b.events.Lines(), want) {
		t.Errorf("events %q, want %q", b.events.Lines(), want)
	}
}

// TestTerminationLogFailure: a container starts even if its termination log cannot be created.
func TestTerminationLogFailure(t *testing.T) {
	b := newBench(t, nil)
	p := simplePod(nil)
	s := b.startOf(p, b.run(t, p))
	inTheWay := filepath.Join(b.root, "pods", "uid-1", "containers", "main")
	if err := errors.Join(os.MkdirAll(filepath.Dir(inTheWay), 0o755), os.WriteFile(inTheWay, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	if _, failure := b.StartContainer(t.Context(), s); failure != nil {
		t.Errorf("not started: %v", failure)
	}
}

// TestTerminationLogPath: a path that is not absolute or not clean is relative to the container's
// root.
func TestTerminationLogPath(t *testing.T) {
	b := newBench(t, nil)
	p := simplePod(func(c *v1.Container) { c.TerminationMessagePath = "tmp/./msg" })
	mounted := startMounts(t, b, b.startOf(p, b.run(t, p)))
	if files := terminationFiles(t, b, p); len(files) != 1 || mounted["/tmp/msg"] != files[0] {
		t.Errorf("mounted are %v, want %v at /tmp/msg", mounted, files)
	}
}

// terminationFiles returns the termination logs of the pod's container main.
func terminationFiles(t *testing.T, b bench, p *v1.Pod) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(b.root, "pods", string(p.UID), "containers", "main", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// A container that may have been created keeps its file until it is removed. Files of volumes are
// never removed.
func TestRemoveTerminationLog(t *testing.T) {
	b := newBench(t, nil)
	p := simplePod(nil)
	s := b.startOf(p, b.run(t, p))
	b.runtime.fail["CreateContainer"] = status.Error(codes.DeadlineExceeded, "too late")
	if _, failure := b.StartContainer(t.Context(), s); failure == nil || len(terminationFiles(t, b, p)) != 1 {
		t.Errorf("%v, with the files %v", failure, terminationFiles(t, b, p))
	}
	delete(b.runtime.fail, "CreateContainer")
	volume := filepath.Join(t.TempDir(), "words")
	write(t, volume)
	s.Mounts = func(func(string) (string, error)) (pod.Contribution, error) {
		return pod.Contribution{Mounts: []pod.Mount{{HostPath: volume, ContainerPath: "/words"}}}, nil
	}
	mounted := startMounts(t, b, s)
	c := pod.Container{ID: b.runtime.Pods()[0].Containers[0].Status.Id, Name: "main"}
	for at, path := range mounted {
		c.Mounts = append(c.Mounts, pod.Mount{HostPath: path, ContainerPath: at})
	}
	if err := b.StopContainer(t.Context(), Stop{Pod: p, Spec: s.Container, Container: c}); err != nil {
		t.Fatal(err)
	}
	if err := b.RemoveContainer(t.Context(), Removal{Ref: pod.RefOf(p), Container: c}); err != nil {
		t.Fatal(err)
	}
	if left := terminationFiles(t, b, p); len(left) != 1 || left[0] == mounted["/dev/termination-log"] {
		t.Errorf("left are %v, of which %s was the removed container's", left, mounted["/dev/termination-log"])
	}
	for _, path := range []string{volume, mounted["/etc/hosts"]} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}

func TestCancelledStartRecordsNoEvent(t *testing.T) {
	b := newBench(t, nil)
	p := simplePod(nil)
	s := b.startOf(p, b.run(t, p))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b.runtime.fail["CreateContainer"] = ctx.Err()
	if _, failure := b.StartContainer(ctx, s); failure == nil || !errors.Is(failure, context.Canceled) {
		t.Errorf("got %v, want the end of the context", failure)
	}
	if got := b.events.Lines(); len(got) != 0 {
		t.Errorf("events %q, want none", got)
	}
}

// Each of stdin, stdinOnce and tty is passed through by itself.
func TestContainerStdinAndTTY(t *testing.T) {
	parity.ProvesPart(t, 2, "LIFE-121")
	for _, want := range [][3]bool{{}, {true, false, false}, {false, true, false}, {false, false, true}} {
		b := newBench(t, nil)
		p := simplePod(func(c *v1.Container) { c.Stdin, c.StdinOnce, c.TTY = want[0], want[1], want[2] })
		if _, failure := b.StartContainer(t.Context(), b.startOf(p, b.run(t, p))); failure != nil {
			t.Fatal(failure)
		}
		got := b.runtime.Pods()[0].Containers[0].Config
		if [3]bool{got.Stdin, got.StdinOnce, got.Tty} != want || got.WorkingDir != "" {
			t.Errorf("stdin %v, once %v, tty %v, in %q; want %v, in the image's", got.Stdin, got.StdinOnce, got.Tty,
				got.WorkingDir, want)
		}
	}
}

// A subPathExpr may refer to a variable set by a device plugin. The container's own value takes
// precedence.
func TestSubPathExprWithDevicePluginVariable(t *testing.T) {
	parity.ProvesPart(t, 2, "RES-47")
	b := newBench(t, nil)
	p := simplePod(func(c *v1.Container) { c.Env = []v1.EnvVar{{Name: "BOTH", Value: "own"}} })
	s := b.startOf(p, b.run(t, p))
	s.Extra.Env = []pod.EnvVar{{Name: "DEVICE", Value: "gpu-0"}, {Name: "BOTH", Value: "plugin"}}
	var path string
	s.Mounts = func(expand func(string) (string, error)) (_ pod.Contribution, err error) {
		path, err = expand("$(DEVICE)/$(BOTH)")
		return pod.Contribution{}, err
	}
	if _, failure := b.StartContainer(t.Context(), s); failure != nil || path != "gpu-0/own" {
		t.Errorf("path %q, %v", path, failure)
	}
}

func TestStartContainerConfig(t *testing.T) {
	parity.ProvesPart(t, 2, "RT-13")
	parity.ProvesPart(t, 2, "RT-15")
	parity.ProvesPart(t, 2, "LIFE-121")
	parity.ProvesPart(t, 3, "RT-42")
	parity.ProvesPart(t, 4, "LIFE-114")
	b := newBench(t, func(c *Config) { c.ContainerStopSignal, c.Kernel.SELinux = true, true })
	p := simplePod(func(c *v1.Container) {
		c.Command, c.Args, c.WorkingDir = []string{"run", "$(A)"}, []string{"$(DEVICE)", "$(NO)"}, "/w"
		c.Env = []v1.EnvVar{{Name: "A", Value: "1"}}
		c.Stdin, c.StdinOnce, c.TTY = true, true, true
		c.Ports = []v1.ContainerPort{{ContainerPort: 80, Protocol: v1.ProtocolTCP}}
		c.Lifecycle = &v1.Lifecycle{
			PreStop:    &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 3}},
			StopSignal: ptr.To(v1.Signal("SIGUSR1")),
		}
	})
	p.Annotations = map[string]string{"of": "the pod"}
	p.DeletionGracePeriodSeconds, p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](4), ptr.To[int64](5)
	s := b.startOf(p, b.run(t, p))
	s.Attempt = 7
	s.Extra = pod.Contribution{
		Mounts:      []pod.Mount{{HostPath: "/h/dev", ContainerPath: "/dev-lib", ReadOnly: true}},
		Devices:     []pod.Device{{HostPath: "/dev/null", ContainerPath: "/dev/x", Permissions: "rw"}},
		CDIDevices:  []string{"vendor.com/x=1"},
		Env:         []pod.EnvVar{{Name: "DEVICE", Value: "d"}},
		Annotations: map[string]string{"plugin": "yes", "io.kubernetes.container.hash": "forged"},
	}
	s.Mounts = func(expand func(string) (string, error)) (pod.Contribution, error) {
		sub, err := expand("$(A)")
		return pod.Contribution{
			Mounts: []pod.Mount{
				{
					HostPath:       "/h/" + sub,
					ContainerPath:  "/v",
					Propagation:    v1.MountPropagationHostToContainer,
					SELinuxRelabel: true,
				},
				{
					HostPath:          "/h/b",
					ContainerPath:     "/b",
					Propagation:       v1.MountPropagationBidirectional,
					ReadOnly:          true,
					RecursiveReadOnly: true,
				},
				{Image: "img", ImageSubPath: "sub", ContainerPath: "/i"},
			},
			Devices: []pod.Device{{HostPath: "/dev/sdb", ContainerPath: "/dev/block", Permissions: "mrw"}},
		}, err
	}
	if _, failure := b.StartContainer(t.Context(), s); failure != nil {
		t.Fatal(failure)
	}
	got := b.runtime.Pods()[0].Containers[0].Config

	var mounts []string
	for _, m := range got.Mounts {
		mounts = append(mounts,
			strings.NewReplacer(b.root, "ROOT").Replace(fmt.Sprintf("%s%s:%s ro=%v rro=%v label=%v %v %s", m.HostPath,
				m.GetImage().GetImage(), m.ContainerPath, m.Readonly, m.RecursiveReadOnly, m.SelinuxRelabel,
				m.Propagation,
				m.ImageSubPath)))
	}
	want := []string{
		"/h/dev:/dev-lib ro=true rro=false label=false PROPAGATION_PRIVATE ",
		"/h/1:/v ro=false rro=false label=true PROPAGATION_HOST_TO_CONTAINER ",
		"/h/b:/b ro=true rro=true label=false PROPAGATION_BIDIRECTIONAL ",
		"img:/i ro=false rro=false label=false PROPAGATION_PRIVATE sub",
		"ROOT/pods/uid-1/etc-hosts:/etc/hosts ro=false rro=false label=true PROPAGATION_PRIVATE ",
	}
	if len(mounts) != 6 || !slices.Equal(mounts[:5], want) ||
		!strings.HasSuffix(mounts[5], ":/dev/termination-log ro=false rro=false label=true PROPAGATION_PRIVATE ") {
		t.Errorf("mounts\n%s\nwant\n%s\nand the termination log", strings.Join(mounts, "\n"), strings.Join(want, "\n"))
	}
	if d := got.Devices; len(d) != 2 || d[0].ContainerPath != "/dev/x" || d[0].Permissions != "rw" ||
		d[1].HostPath != "/dev/sdb" {
		t.Errorf("devices %v", d)
	}
	if d := got.CDIDevices; len(d) != 1 || d[0].Name != "vendor.com/x=1" {
		t.Errorf("CDI devices %v", d)
	}
	if e := got.Envs; e[0].Key != "DEVICE" || e[1].Key != "A" {
		t.Errorf("variables %v, want those of devices first", e)
	}
	if c := strings.Join(append(got.Command, got.Args...), " "); c != "run 1 d $(NO)" || got.WorkingDir != "/w" {
		t.Errorf("command %q in %s", c, got.WorkingDir)
	}
	if !got.Stdin || !got.StdinOnce || !got.Tty || got.StopSignal != runtimeapi.Signal_SIGUSR1 ||
		got.LogPath != "main/7.log" || got.Metadata.Attempt != 7 {
		t.Errorf("config %v", got)
	}
	for k, v := range map[string]string{
		"plugin":                                           "yes",
		"io.kubernetes.container.hash":                     "a785d335",
		"io.kubernetes.container.restartCount":             "7",
		"io.kubernetes.container.terminationMessagePath":   "/dev/termination-log",
		"io.kubernetes.container.preStopHandler":           `{"sleep":{"seconds":3}}`,
		"io.kubernetes.container.ports":                    `[{"containerPort":80,"protocol":"TCP"}]`,
		"io.kubernetes.pod.deletionGracePeriod":            "4",
		"io.kubernetes.pod.terminationGracePeriod":         "5",
		"io.kubernetes.container.terminationMessagePolicy": "File",
	} {
		if got.Annotations[k] != v {
			t.Errorf("annotation %s is %q, want %q", k, got.Annotations[k], v)
		}
	}
	if _, ok := got.Annotations["of"]; ok {
		t.Error("the pod's annotations are on the container")
	}
}

// Localhost profiles are below the root directory.
func TestLocalhostSeccompProfilePath(t *testing.T) {
	parity.ProvesPart(t, 3, "LIFE-112")
	b := newBench(t, nil)
	p := simplePod(func(c *v1.Container) {
		c.SecurityContext = &v1.SecurityContext{SeccompProfile: &v1.SeccompProfile{
			Type:             v1.SeccompProfileTypeLocalhost,
			LocalhostProfile: ptr.To("mine/a.json"),
		}}
	})
	if _, failure := b.StartContainer(t.Context(), b.startOf(p, b.run(t, p))); failure != nil {
		t.Fatal(failure)
	}
	got := b.runtime.Pods()[0].Containers[0].Config.Linux.SecurityContext.Seccomp
	if got.ProfileType != runtimeapi.SecurityProfile_Localhost || got.LocalhostRef != b.root+"/seccomp/mine/a.json" {
		t.Errorf("profile %v", got)
	}
}

func TestStopSignalGate(t *testing.T) {
	parity.ProvesPart(t, 3, "LIFE-58")
	p := simplePod(func(c *v1.Container) { c.Lifecycle = &v1.Lifecycle{StopSignal: ptr.To(v1.Signal("SIGUSR1"))} })
	b := newBench(t, nil)
	if _, failure := b.StartContainer(t.Context(), b.startOf(p, b.run(t, p))); failure != nil {
		t.Fatal(failure)
	}
	if got := b.runtime.Pods()[0].Containers[0].Config.StopSignal; got != runtimeapi.Signal_RUNTIME_DEFAULT {
		t.Errorf("stop signal %v was sent", got)
	}
	b = newBench(t, func(c *Config) { c.ContainerStopSignal = true })
	if _, failure := b.StartContainer(t.Context(), b.startOf(p, b.run(t, p))); failure != nil {
		t.Fatal(failure)
	}
	if got := b.runtime.Pods()[0].Containers[0].Config.StopSignal; got != runtimeapi.Signal_SIGUSR1 {
		t.Errorf("stop signal %v was sent, want SIGUSR1", got)
	}
	for name, want := range map[v1.Signal]runtimeapi.Signal{
		"SIGRTMIN":    runtimeapi.Signal_SIGRTMIN,
		"SIGRTMIN+3":  runtimeapi.Signal_SIGRTMINPLUS3,
		"SIGRTMAX-14": runtimeapi.Signal_SIGRTMAXMINUS14,
	} {
		p.Spec.Containers[0].Lifecycle.StopSignal = &name
		b = newBench(t, func(c *Config) { c.ContainerStopSignal = true })
		if _, failure := b.StartContainer(t.Context(), b.startOf(p, b.run(t, p))); failure != nil {
			t.Errorf("%s: %v", name, failure)
		} else if got := b.runtime.Pods()[0].Containers[0].Config.StopSignal; got != want {
			t.Errorf("stop signal %v was sent, want %v", got, want)
		}
	}
	p.Spec.Containers[0].Lifecycle.StopSignal = ptr.To(v1.Signal("SIGODD"))
	b = newBench(t, func(c *Config) { c.ContainerStopSignal = true })
	if _, failure := b.StartContainer(t.Context(), b.startOf(p, b.run(t, p))); failure == nil ||
		failure.Reason != pod.ReasonCreateContainerConfig {
		t.Errorf("an unknown signal: %v", failure)
	}
}

func TestNoTerminationMessagePath(t *testing.T) {
	b := newBench(t, nil)
	p := simplePod(func(c *v1.Container) { c.TerminationMessagePath = "" })
	startMounts(t, b, b.startOf(p, b.run(t, p)))
	if _, err := os.Stat(filepath.Join(b.root, "pods/uid-1/containers")); !os.IsNotExist(err) {
		t.Errorf("a termination log was made: %v", err)
	}
}

func TestImageUserIsCached(t *testing.T) {
	parity.ProvesPart(t, 3, "LIFE-110")
	b := newBench(t, nil)
	p := simplePod(nil)
	s := b.startOf(p, b.run(t, p))
	for i := range 2 {
		s.Attempt = i
		if _, failure := b.StartContainer(t.Context(), s); failure != nil {
			t.Fatal(failure)
		}
	}
	if b.runtime.images != 1 {
		t.Errorf("%d calls of ImageStatus", b.runtime.images)
	}
	// A tag may move to another image. With runAsUser the image's user is not needed.
	s.Attempt, s.ImageRef = 2, busybox
	if _, failure := b.StartContainer(t.Context(), s); failure != nil {
		t.Fatal(failure)
	}
	s.Attempt = 3
	s.Container.SecurityContext = &v1.SecurityContext{RunAsUser: ptr.To[int64](5)}
	if _, failure := b.StartContainer(t.Context(), s); failure != nil {
		t.Fatal(failure)
	}
	if b.runtime.images != 2 {
		t.Errorf("%d calls of ImageStatus in all, want 2", b.runtime.images)
	}
	b.runtime.AddImage(fakecri.Image{Name: "named", Username: "www"})
	s.Attempt, s.ImageRef, s.Container.SecurityContext = 4, "named", nil
	if _, failure := b.StartContainer(t.Context(), s); failure != nil {
		t.Fatal(failure)
	}
	cs := b.runtime.Pods()[0].Containers
	if sc := cs[len(cs)-1].Config.Linux.SecurityContext; sc.RunAsUsername != "www" || sc.RunAsUser != nil {
		t.Errorf("runs as %q, %v; want the image's www", sc.RunAsUsername, sc.RunAsUser)
	}
}

func TestUserNamespace(t *testing.T) {
	parity.ProvesPart(t, 5, "LIFE-116")
	ids := []*runtimeapi.IDMapping{{HostId: 65536, Length: 65536}}
	b := newBench(t, func(c *Config) {
		c.UserNamespace = func(*v1.Pod) (*runtimeapi.UserNamespace, error) {
			return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids, Gids: ids}, nil
		}
	})
	p := simplePod(nil)
	p.Spec.HostUsers = ptr.To(false)
	if _, failure := b.StartContainer(t.Context(), b.startOf(p, b.run(t, p))); failure != nil {
		t.Fatal(failure)
	}
	got := b.runtime.Pods()[0]
	for who, o := range map[string]*runtimeapi.NamespaceOption{
		"sandbox":   got.Config.Linux.SecurityContext.NamespaceOptions,
		"container": got.Containers[0].Config.Linux.SecurityContext.NamespaceOptions,
	} {
		if o.UsernsOptions.Mode != runtimeapi.NamespaceMode_POD || len(o.UsernsOptions.Uids) != 1 ||
			o.UsernsOptions.Uids[0].HostId != 65536 {
			t.Errorf("%s has %v", who, o.UsernsOptions)
		}
	}
	for _, m := range got.Containers[0].Config.Mounts {
		if len(m.UidMappings) != 1 || len(m.GidMappings) != 1 {
			t.Errorf("mount %s is not mapped: %v", m.ContainerPath, m)
		}
	}
	b.cfg.UserNamespace = nil
	if _, err := b.RunSandbox(t.Context(), p, 1); err == nil {
		t.Error("a node without user namespaces runs such a pod")
	}
}

func TestRunSandbox(t *testing.T) {
	parity.ProvesPart(t, 3, "LIFE-66")
	var asked string
	b := newBench(t, func(c *Config) {
		c.RuntimeHandler = func(p *v1.Pod) (string, error) {
			if c := p.Spec.RuntimeClassName; c != nil {
				return "", fmt.Errorf("RuntimeClass %q not found", *c)
			}
			asked = p.Name
			return "", nil
		}
	})
	p := simplePod(nil)
	id, err := b.RunSandbox(t.Context(), p, 3)
	if err != nil || asked != "web" {
		t.Fatalf("%v, called for %q", err, asked)
	}
	got := b.runtime.Pods()[0]
	if got.Sandbox.Id != id || got.Config.Metadata.Attempt != 3 {
		t.Errorf("sandbox %v, want %s of attempt 3", got.Sandbox, id)
	}
	p.Spec.SetHostnameAsFQDN, p.Spec.Subdomain = ptr.To(true), "sub"
	full, err := b.RunSandbox(t.Context(), p, 4)
	if err != nil {
		t.Fatal(err)
	}
	if pods := b.runtime.Pods(); pods[0].Config.Hostname != "web" ||
		pods[1].Config.Hostname != "web.sub.ns.svc.cluster.local" {
		t.Errorf("host names %s and %s", pods[0].Config.Hostname, pods[1].Config.Hostname)
	}
	if err := errors.Join(b.StopSandbox(t.Context(), full), b.RemoveSandbox(t.Context(), full)); err != nil {
		t.Error(err)
	}
	for _, change := range []func(*v1.Pod){
		func(p *v1.Pod) { p.Spec.RuntimeClassName = ptr.To("odd") },
		func(p *v1.Pod) {
			p.Spec.SetHostnameAsFQDN, p.Spec.Subdomain = ptr.To(true), strings.Repeat("s", 60)
		},
	} {
		p := simplePod(nil)
		change(p)
		if _, err := b.RunSandbox(t.Context(), p, 4); err == nil {
			t.Errorf("no error for %v", p.Spec)
		}
	}
	for range 2 { // the second time it does not exist
		if err := errors.Join(b.StopSandbox(t.Context(), id), b.RemoveSandbox(t.Context(), id)); err != nil {
			t.Error(err)
		}
	}
	if n := len(b.runtime.Pods()); n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	b := newBench(t, func(c *Config) { c.Registry = reg })
	p := simplePod(func(c *v1.Container) { c.Env = []v1.EnvVar{{Name: "A", ValueFrom: configKey("no", "k", false)}} })
	s := b.startOf(p, b.run(t, p))
	if _, failure := b.StartContainer(t.Context(), s); failure == nil {
		t.Fatal("started")
	}
	b.NotStarted(pod.Init, pod.ReasonErrImagePull)
	if got := counted(t, reg, "kubelet_started_containers_errors_total", map[string]string{
		"container_type": "init_container",
		"code":           "ErrImagePull",
	}); got != 1 {
		t.Errorf("%v containers without an image are counted, want 1", got)
	}
	p.Spec.HostUsers = ptr.To(false)
	if _, err := b.RunSandbox(t.Context(), p, 1); err == nil {
		t.Fatal("ran")
	}
	for want, labels := range map[string]map[string]string{
		"kubelet_started_containers_total": {"container_type": "container"},
		"kubelet_started_containers_errors_total": {
			"container_type": "container",
			"code":           "CreateContainerConfigError",
		},
		"kubelet_started_pods_errors_total":                 nil,
		"kubelet_started_user_namespaced_pods_total":        nil,
		"kubelet_started_user_namespaced_pods_errors_total": nil,
	} {
		if got := counted(t, reg, want, labels); got != 1 {
			t.Errorf("%s%v is %v, want 1", want, labels, got)
		}
	}
	if got := counted(t, reg, "kubelet_started_pods_total", nil); got != 2 {
		t.Errorf("kubelet_started_pods_total is %v, want 2", got)
	}
	if _, err := New(Config{Registry: reg}); err == nil {
		t.Error("metrics were registered twice")
	}
}

// counted returns the value of the counter with exactly these labels.
func counted(t *testing.T, reg *prometheus.Registry, name string, labels map[string]string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			have := map[string]string{}
			for _, l := range m.GetLabel() {
				have[l.GetName()] = l.GetValue()
			}
			if maps.Equal(have, labels) {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("no metric %s%v", name, labels)
	return 0
}
