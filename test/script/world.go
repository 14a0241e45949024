package script

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"keelson/internal/app"
	"keelson/internal/config"
	"keelson/internal/host/machine"
	"keelson/internal/storage/volume/persistent"
	"keelson/test/kit/apiproxy"
	"keelson/test/kit/fakeapi"
	"keelson/test/kit/fakecri"
	"keelson/test/kit/memhttp"
	"keelson/test/kit/placement"
)

const (
	Node      = "node1"
	Namespace = "default"
	// latency is the duration of every runtime call. It makes successive calls different
	// from concurrent ones.
	latency = time.Millisecond
	// reviveAfter is the time from the kill of an agent to its next start in the crash test.
	reviveAfter = time.Second
	// restartAfter is how long a service manager waits before it restarts an agent.
	restartAfter = 10 * time.Second
)

// World is one node with its control plane.
type World struct {
	T        testing.TB
	Dir      string
	Config   string             // YAML of the scenario
	machine  *placement.Machine // nil: the machine of the test
	Flags    []string
	Alone    bool // without an API server
	Operator app.Operator
	Filter   func(ctx context.Context, program string, args ...string) error // runs iptables; nil: not used
	// the node's SELinux; nil: that of the machine
	selinux persistent.Labels
	Log     *logBuffer
	Wrap    func(slog.Handler) slog.Handler // wraps the handler of the log; nil: not used
	begin   time.Time
	Runtime *fakecri.Runtime
	Conn    swap[*grpc.ClientConn]
	Server  *fakeapi.Server
	Proxy   *apiproxy.Proxy
	login   loginManager
	sockets *sockets
	plugins plugins
	drivers drivers
	living  atomic.Pointer[agent] // the agent for device plugins and DRA drivers; it may have been killed
	API     kubernetes.Interface  // not through the proxy: users are never partitioned

	gauges    *gauges
	chronicle chronicle
	manifests chan fsnotify.Event // as the kernel reports changes of manifests

	mu      sync.Mutex
	events  []event
	node    []event                // warnings about the node
	sick    map[string]bool        // containers whose healthy command fails, as pod/container
	writes  int                    // calls so far that changed something
	changes int                    // of these, those of the runtime
	crashAt int                    // the number of the write after which the agent is killed; zero: none
	crashed string                 // the method of that write
	doom    *doom                  // the call that meets a fate; nil: none
	down    bool                   // the scenario has disconnected the runtime
	specs   map[string]*corev1.Pod // the pods of the scenario, by name
	// breached are the broken invariants.
	breached []string

	life    turn   // held while the agent is started or stopped
	agent   *agent // nil while there is none
	wanted  bool   // the agent should run: it is started again after a crash
	guarded bool   // an agent that exits is restarted, as by a service manager
	revive  sync.WaitGroup
}

// turn is a lock on which a goroutine blocks durably: virtual time advances while it waits.
type turn chan struct{}

func (t turn) Lock()   { t <- struct{}{} }
func (t turn) Unlock() { <-t }

// agent is one process of the agent.
type agent struct {
	link *link
	stop context.CancelFunc
	done chan struct{}
	err  error // once done is closed

	mu    sync.Mutex
	local http.Handler      // the handler of the agent's local socket
	files map[string][]byte // its state files when it was killed
}

// NewWorld makes a node. It must be called inside the bubble. dir is the agent's directory; old
// makes the runtime one without an event stream.
func NewWorld(t testing.TB, dir, configuration string, old bool) *World {
	w := &World{
		T:         t,
		Dir:       dir,
		Config:    configuration,
		Log:       &logBuffer{},
		begin:     time.Now(),
		Server:    fakeapi.New(),
		sick:      map[string]bool{},
		specs:     map[string]*corev1.Pod{},
		life:      make(turn, 1),
		manifests: make(chan fsnotify.Event, 16),
	}
	w.Runtime = fakecri.New(fakecri.Options{
		OnExec:   w.onExec,
		OnMoment: w.chronicle.note,
		Old:      old,
		Handlers: []string{"kata"},
		Plain:    []string{"plain"},
	})
	w.Runtime.AddImage(fakecri.Image{Name: Image, Size: 1 << 20})
	w.Runtime.Inject(fakecri.Fault{Delay: latency})
	w.sockets = &sockets{made: func(path string) { w.introduceAll(path) }}
	w.Proxy = apiproxy.New(w.noteEvents(w.Server))
	w.API = w.Server.Client()
	w.gauges = newGauges(w)
	w.Connect()
	return w
}

// Connect makes the runtime reachable.
func (w *World) Connect() {
	conn, err := w.Runtime.Dial()
	if err != nil {
		w.T.Fatal(err)
	}
	if old := w.Conn.Get(); old != nil {
		old.Close() // its server is gone
	}
	w.Conn.set(conn)
}

// Close ends all goroutines in the bubble.
func (w *World) Close() {
	w.Stop()
	w.doom.end()
	w.revive.Wait()
	w.stopPlugins()
	w.drivers.stop()
	w.Runtime.Close()
	w.Conn.Get().Close() // its server is gone
}

// Settings is the agent's configuration: the defaults, without features that cannot be used in
// tests that run in parallel and in virtual time. Image garbage collection is off, because
// the disk is that of the machine.
func (w *World) Settings() (*config.Config, error) {
	base := fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///in-memory
staticPodPath: %s
podLogsDir: %s
fileCheckFrequency: 1s
resolvConf: ""
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
cgroupsPerQOS: false
enforceNodeAllocatable: []
failCgroupV1: false
enableServer: false
healthzPort: 0
contentType: application/json
eventRecordQPS: 0
registryPullQPS: 0
serializeImagePulls: false
imageGCHighThresholdPercent: 100
`, w.Path("manifests"), w.Path("logs"))
	file := w.Path("config.yaml")
	if err := os.WriteFile(file, []byte(base+w.Config), 0o600); err != nil {
		return nil, err
	}
	args := []string{"--config=" + file, "--root-dir=" + w.Path("kubelet"), "--cert-dir=" + w.Path("pki"),
		"--hostname-override=" + Node}
	if !w.Alone {
		args = append(args, "--kubeconfig="+w.Path("in-memory"))
	}
	if ip := SomeAddress(); ip != "" {
		args = append(args, "--node-ip="+ip)
	}
	return config.Load(append(args, w.Flags...))
}

// SomeAddress is an address of this machine. With it the agent needs no lookup of its own name.
func SomeAddress() string {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return ""
	}
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() && ip.IP.To4() != nil {
			return ip.IP.String()
		}
	}
	return ""
}

func (w *World) Path(name string) string { return filepath.Join(w.Dir, name) }

// Start starts the agent.
func (w *World) Start() {
	if err := w.tryStart(); err != nil {
		w.T.Error(err)
	}
}

// tryStart is Start, but returns an error if the agent runs already.
func (w *World) tryStart() error {
	w.revive.Wait()
	w.life.Lock()
	defer w.life.Unlock()
	if w.agent != nil {
		return errors.New("start: the agent runs already")
	}
	w.wanted = true
	w.startLocked()
	return nil
}

func (w *World) startLocked() {
	cfg, err := w.Settings()
	if err != nil {
		w.T.Errorf("start the agent: %v", err)
		return
	}
	// Device plugins find the agent of this node in this directory.
	if err := os.MkdirAll(filepath.Dir(w.Path(deviceSocket)), 0o750); err != nil && !errors.Is(err, syscall.ENOTDIR) {
		w.T.Errorf("start the agent: %v", err)
		return
	}
	a := &agent{done: make(chan struct{})}
	a.link = newLink(func() grpc.ClientConnInterface { return w.Conn.Get() }, memhttp.Transport(w.Proxy))
	a.link.after = func(method string) { w.after(a, method) }
	a.link.cancelled = func(method string) { w.breach("the agent cancelled " + method) }
	var ctx context.Context
	ctx, a.stop = context.WithCancel(context.Background())
	links := app.Links{Operator: w.Operator, Runtime: a.link, API: &rest.Config{
		Host:      "http://api",
		Transport: a.link,
		QPS:       -1,
	}, NoFileWatch: true, ManifestChanges: w.manifests, Netfilter: w.Filter, SELinux: w.selinux, Gauges: w.gauges,
		Login:   w.login.connect(a.link.ctx),
		Sockets: a.link.sockets(w.sockets),
		Local: func(h http.Handler) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.local = h
		}}
	if w.machine != nil {
		links.Machine = w.machine.On(machine.Host())
	}
	var log slog.Handler = slog.NewTextHandler(w.Log, &slog.HandlerOptions{Level: slog.LevelDebug})
	if w.Wrap != nil {
		log = w.Wrap(log)
	}
	go func() {
		defer close(a.done)
		a.err = app.RunOver(ctx, cfg, slog.New(log), links)
		if a.err != nil && w.guarded {
			w.revive.Go(func() { w.startAnew(a, restartAfter) })
		}
	}()
	w.agent = a
	w.living.Store(a)
}

// startAnew starts the agent after a pause in place of one that has ended, if it should still run then.
func (w *World) startAnew(after *agent, pause time.Duration) {
	time.Sleep(pause)
	w.life.Lock()
	defer w.life.Unlock()
	if w.agent == after {
		w.endLocked(true)
	}
	if w.wanted && w.agent == nil {
		w.startLocked()
	}
}

// Stop ends the agent as a signal does. Without an agent it does nothing.
func (w *World) Stop() { w.end(false) }

// kill ends the agent as SIGKILL does.
func (w *World) kill() { w.end(true) }

// end ends the agent until the next start. An agent that is killed meanwhile is not restarted.
func (w *World) end(abruptly bool) {
	w.life.Lock()
	defer w.life.Unlock()
	w.wanted = false
	w.endLocked(abruptly)
}

func (w *World) endLocked(abruptly bool) {
	a := w.agent
	if a == nil {
		return
	}
	w.agent = nil
	if abruptly {
		w.cut(a)
	}
	a.link.ending.Store(true)
	a.stop()
	<-a.done
	a.link.cut() // ends calls that hang
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.files != nil {
		if err := w.putBack(a.files); err != nil {
			w.T.Errorf("kill the agent: %v", err)
		}
	}
	if a.err != nil && !w.guarded {
		w.T.Errorf("the agent failed: %v", a.err)
	}
}

// cut ends all connections of an agent and keeps its state files as they are at this moment. Its
// goroutines end later, unlike with SIGKILL; what they write until then is undone.
func (w *World) cut(a *agent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.files != nil {
		return // it was cut before
	}
	// A request sent after the files were read could depend on a file that the agent has written since; a killed
	// agent could not have sent it.
	a.link.hold()
	files, err := w.steadyNotes()
	if err != nil {
		w.T.Errorf("kill the agent: %v", err)
	}
	a.files = files
	a.link.cut()
}

// writing are the calls that change something in the runtime.
var writing = map[string]bool{"RunPodSandbox": true, "StopPodSandbox": true, "RemovePodSandbox": true,
	"CreateContainer": true,
	"StartContainer":  true, "StopContainer": true, "RemoveContainer": true, "PullImage": true,
	"UpdateContainerResources": true, "UpdatePodSandboxResources": true}

// asking are the calls between the agent and device plugins or DRA drivers that change
// something.
var asking = map[string]bool{
	"Register":               true,
	"Allocate":               true,
	"PreStartContainer":      true,
	"NodePrepareResources":   true,
	"NodeUnprepareResources": true,
}

// done is called for every call in asking that has been executed, before its caller gets the answer.
func (w *World) done(method string) {
	if a := w.living.Load(); a != nil && a.link.ctx.Err() == nil {
		w.after(a, method)
	}
}

// after is called for every runtime call of the agent that has ended. It checks the
// invariants, and kills the agent after the call of number crashAt.
func (w *World) after(a *agent, method string) {
	method = filepath.Base(method)
	if method == "StartContainer" {
		w.checkInstances()
	}
	if !writing[method] && !asking[method] {
		return
	}
	w.mu.Lock()
	if writing[method] {
		w.changes++
	}
	w.writes++
	dies := w.writes == w.crashAt
	if dies {
		w.crashed = method
	}
	w.mu.Unlock()
	if !dies {
		return
	}
	w.cut(a)
	w.revive.Go(func() {
		w.life.Lock()
		w.endLocked(true)
		w.life.Unlock()
		w.startAnew(nil, reviveAfter)
	})
}

// checkInstances looks for two running instances of a container, and for two
// running copies of a static pod, which are two pods of one name.
func (w *World) checkInstances() {
	type key struct{ uid, container string }
	running, copies := map[key]string{}, map[string]string{}
	for _, p := range w.Runtime.Pods() {
		for _, c := range p.Containers {
			if c.Status.State != cri.ContainerState_CONTAINER_RUNNING {
				continue
			}
			k := key{p.UID, c.Status.Metadata.Name}
			if _, two := running[k]; two {
				w.breach("two instances of " + p.Name + "/" + k.container + " run at once")
			}
			running[k] = c.Status.Id
			if p.Config.Annotations["kubernetes.io/config.source"] == "api" {
				continue
			}
			if uid, there := copies[p.Name]; there && uid != p.UID {
				w.breach("two copies of static pod " + p.Name + " run at once")
			}
			copies[p.Name] = p.UID
		}
	}
}

// starts counts the successful starts of each instance, also if their answers were lost.
func (w *World) starts() map[string]int {
	names, n := w.names(), map[string]int{}
	for _, c := range w.Runtime.Calls(0) {
		if c.Method == "StartContainer" && c.Done {
			n[fmt.Sprintf("%s/%s#%d", names[c.UID], c.Container, c.Attempt)]++
		}
	}
	return n
}

// breaches are the broken invariants.
func (w *World) breaches() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.breached)
}

func (w *World) breach(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.breached = append(w.breached, what)
}

// onExec answers the probe command "healthy".
func (w *World) onExec(e fakecri.Exec) (fakecri.ExecResult, bool) {
	if e.Command[0] != "healthy" {
		return fakecri.ExecResult{}, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sick[strings.TrimPrefix(e.Pod, Namespace+"/")+"/"+e.Container] {
		return fakecri.ExecResult{Code: 1, Stdout: "not well"}, true
	}
	return fakecri.ExecResult{}, true
}

// event is what the agent reported about a pod.
type event struct {
	pod, container, kind, reason, message string
	again                                 bool
	at                                    time.Time
}

// noteEvents records the events that are sent. The server cannot be used for that: the name
// of an event has its time in it, and events of one pod at the same virtual time
// have the same name.
func (w *World) noteEvents(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		what := apiproxy.Describe(r)
		if what.Resource != "events" || what.Verb != "create" && what.Verb != "patch" {
			next.ServeHTTP(rw, r)
			return
		}
		text, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(rw, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(text))
		next.ServeHTTP(rw, r)
		var e corev1.Event
		if what.Verb == "patch" {
			for _, o := range w.Server.Objects(corev1.SchemeGroupVersion.WithResource("events")) {
				if o.(*corev1.Event).Name == what.Name {
					e = *o.(*corev1.Event)
				}
			}
		} else if err := json.Unmarshal(text, &e); err != nil {
			w.T.Errorf("read event: %v", err)
		}
		if e.InvolvedObject.Kind == "Node" && e.Type == corev1.EventTypeWarning && e.Reason != "CgroupV1" {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.node = append(w.node, event{kind: e.Type, reason: e.Reason, message: e.Message})
			return
		}
		if e.InvolvedObject.Kind != "Pod" {
			return
		}
		_, container, _ := strings.Cut(strings.TrimSuffix(e.InvolvedObject.FieldPath, "}"), "{")
		w.mu.Lock()
		defer w.mu.Unlock()
		w.events = append(w.events,
			event{e.InvolvedObject.Name, container, e.Type, e.Reason, e.Message, what.Verb == "patch", time.Now()})
	})
}

// takeEvents returns and removes the recorded events about a pod, or about all pods.
func (w *World) takeEvents(pod string) []event {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out, others []event
	for _, e := range w.events {
		if pod == "" || e.pod == pod {
			out = append(out, e)
		} else {
			others = append(others, e)
		}
	}
	w.events = others
	return out
}

// Awaits waits until the pod at the API server is as wanted.
func (w *World) Awaits(name string, limit time.Duration, wanted func(*corev1.Pod) bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	p, err := w.Server.WaitPod(ctx, Namespace, name, wanted)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("not within %s; it is:\n%s", limit, cmp.Or(w.showStatus(p), "not there\n"))
	}
	return err
}

// logBuffer keeps what the agent logged, for a scenario that fails.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
