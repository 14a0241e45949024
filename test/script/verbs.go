package script

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"keelson/test/kit/apiproxy"
	"keelson/test/kit/fakecri"
)

const (
	// image is that of containers that name none. It is on the node already.
	image = "app:1"
	// waitLimit is virtual: it is reached only when nothing is left to happen.
	waitLimit = time.Hour
	// calm lets what a wait was for have its consequences, statuses that nobody acts on included: those wait for 300 ms.
	calm = 350 * time.Millisecond
	// steadySlack are goroutines that come and go: a heartbeat, a watch made anew.
	steadySlack = 4
)

// run is one execution of a scenario.
type run struct {
	*world
	scenario *Scenario
	look     int // the last call that was shown
	faults   map[string]fault
}

type fault interface {
	Release()
	Hit() <-chan struct{}
}

// verb does something, and tells what there is to see.
type verb struct {
	usage string
	shows bool // its block is compared
	do    func(r *run, args []string) (string, error)
}

var verbs map[string]verb

func init() { // the verbs refer to the table when one is unknown
	verbs = map[string]verb{
		"start":   {"", false, quiet(func(r *run, _ []string) error { r.start(); return nil })},
		"stop":    {"", false, quiet(func(r *run, _ []string) error { r.stop(); return nil })},
		"kill":    {"", false, quiet(func(r *run, _ []string) error { r.kill(); return nil })},
		"restart": {"", false, quiet(func(r *run, _ []string) error { r.stop(); r.start(); return nil })},
		"advance": {"DURATION", false, quiet((*run).advance)},

		"apply":    {"FILE...", false, quiet((*run).apply)},
		"delete":   {"POD [grace=SECONDS|force]", false, quiet((*run).delete)},
		"resize":   {"POD CONTAINER [limits.]RESOURCE=AMOUNT...", false, quiet((*run).resize)},
		"label":    {"KEY=VALUE", false, quiet((*run).label)},
		"gate":     {"POD CONDITION True|False", false, quiet((*run).gate)},
		"class":    {"RUNTIMECLASS [HANDLER]", false, quiet((*run).class)},
		"static":   {"FILE...", false, quiet((*run).static)},
		"unstatic": {"FILE...", false, quiet((*run).unstatic)},
		"wait":     {"node|lease|POD Pending|Running|Succeeded|Failed|Ready|NotReady|gone|CONTAINER=STATE|CONTAINER#RESTARTS...", false, quiet((*run).wait)},

		"exit":         {"POD CONTAINER CODE", false, quiet((*run).exit)},
		"oom":          {"POD CONTAINER", false, quiet(func(r *run, a []string) error { return r.runtime.OOMKill(a[0], a[1]) })},
		"kill-sandbox": {"POD", false, quiet(func(r *run, a []string) error { return r.runtime.KillSandbox(a[0]) })},
		"stop-sandbox": {"POD", false, quiet((*run).stopSandbox)},
		"sick":         {"POD CONTAINER", false, quiet(func(r *run, a []string) error { return r.health(a, true) })},
		"well":         {"POD CONTAINER", false, quiet(func(r *run, a []string) error { return r.health(a, false) })},
		"remove-image": {"IMAGE", false, quiet((*run).removeImage)},
		"lose":         {"POD CONTAINER", false, quiet((*run).lose)},

		"fault":     {"NAME METHOD [pod=POD] [container=NAME] [image=IMAGE] [skip=N] [times=N] [delay=DURATION] [fail=MESSAGE] [hang] [after] [lie=LIE] [idle]", false, quiet((*run).fault)},
		"api-fault": {"NAME VERB RESOURCE [name=NAME] [skip=N] [times=N] [delay=DURATION] [code=CODE] [retry=DURATION] [drop] [hang] [after]", false, quiet((*run).apiFault)},
		"hanging":   {"NAME LIMIT", false, quiet((*run).hanging)},
		"steady":    {"DURATION", false, quiet((*run).steady)},
		"hit":       {"NAME", false, quiet((*run).hit)},
		"release":   {"NAME", false, quiet((*run).release)},
		"runtime":   {"[up|down]", true, (*run).runtimeIs},
		"network":   {"up|down", false, quiet(func(r *run, a []string) error { return r.networkIs(a[0]) })},
		"api":       {"up|down|hang", false, quiet((*run).apiIs)},

		"pulls":     {"", true, func(r *run, _ []string) (string, error) { return r.showPulls(), nil }},
		"calls":     {"[POD] [timed]", true, (*run).calls},
		"status":    {"POD", true, (*run).status},
		"resources": {"POD", true, (*run).resources},
		"explain":   {"[POD [drawn]]", true, (*run).explain}, // what kubelet explain says; a list without a pod
		"events":    {"[POD]", true, func(r *run, a []string) (string, error) { return r.showEvents(first(a)), nil }},
		"left":      {"", true, func(r *run, _ []string) (string, error) { return r.showLeft() }},

		"put":      {"FILE...", false, quiet((*run).put)},
		"take":     {"KIND NAME", false, quiet((*run).take)},
		"mounted":  {"[POD]", true, func(r *run, a []string) (string, error) { return r.showMounted(first(a)) }},
		"mounts":   {"POD CONTAINER", true, func(r *run, a []string) (string, error) { return r.showMounts(a[0], a[1]) }},
		"token":    {"POD CONTAINER PATH", true, func(r *run, a []string) (string, error) { return r.showToken(a[0], a[1], a[2]) }},
		"statuses": {"POD", true, (*run).showVolumeStatuses},
		"read":     {"POD CONTAINER PATH", true, func(r *run, a []string) (string, error) { return r.read(a[0], a[1], a[2]) }},
	}
}

func quiet(f func(*run, []string) error) func(*run, []string) (string, error) {
	return func(r *run, args []string) (string, error) { return "", f(r, args) }
}

func first(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// do executes one step, and lets everything that follows from it at the same
// moment happen.
func (r *run) do(st step) (string, error) {
	v, ok := verbs[st.args[0]]
	if !ok {
		return "", fmt.Errorf("unknown verb %q", st.args[0])
	}
	least := len(slices.DeleteFunc(strings.Fields(v.usage), func(s string) bool { return strings.HasPrefix(s, "[") }))
	if len(st.args)-1 < least {
		return "", fmt.Errorf("usage: %s %s", st.args[0], v.usage)
	}
	out, err := v.do(r, st.args[1:])
	synctest.Wait()
	return out, err
}

// options reads key=value and plain words.
func options(args []string, known ...string) (map[string]string, error) {
	o := map[string]string{}
	for _, a := range args {
		k, v, _ := strings.Cut(a, "=")
		if !slices.Contains(known, k) {
			return nil, fmt.Errorf("unknown option %q, want one of %s", k, strings.Join(known, ", "))
		}
		o[k] = v
	}
	return o, nil
}

func (r *run) advance(args []string) error {
	d, err := seconds(args[0])
	time.Sleep(d)
	return err
}

// manifest reads a pod; what most pods have need not be written.
func (r *run) manifest(file string) (*corev1.Pod, error) {
	data, ok := r.scenario.Files[file]
	if !ok {
		return nil, fmt.Errorf("there is no file %s in the scenario", file)
	}
	p := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	if err := yaml.UnmarshalStrict([]byte(data), p); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	if p.Name == "" {
		p.Name = strings.TrimSuffix(file, ".yaml")
	}
	p.Namespace = namespace
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			if list[i].Image == "" {
				list[i].Image = image
			}
		}
	}
	for i := range p.Spec.EphemeralContainers {
		p.Spec.EphemeralContainers[i].Image = image
	}
	return p, nil
}

// named reads the pod that FILE, or NAME=FILE, stands for: the second form makes
// another version of the pod NAME.
func (r *run) named(a string) (*corev1.Pod, error) {
	name, file, other := strings.Cut(a, "=")
	if !other {
		file = name
	}
	p, err := r.manifest(file)
	if err == nil && other {
		p.Name = strings.TrimSuffix(name, ".yaml")
	}
	return p, err
}

// apply creates pods, or changes those that are there.
func (r *run) apply(args []string) error {
	pods := r.api.CoreV1().Pods(namespace)
	for _, a := range args {
		p, err := r.named(a)
		if err != nil {
			return err
		}
		p.Spec.NodeName = node
		have, err := pods.Get(context.Background(), p.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			if _, err := pods.Create(context.Background(), p, metav1.CreateOptions{}); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		// What a user may change of a running pod.
		have.Spec.ActiveDeadlineSeconds = p.Spec.ActiveDeadlineSeconds
		for i, c := range p.Spec.Containers {
			have.Spec.Containers[i].Image = c.Image
		}
		have.Spec.EphemeralContainers = p.Spec.EphemeralContainers
		if _, err := pods.Update(context.Background(), have, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) delete(args []string) error {
	o, err := options(args[1:], "grace", "force")
	if err != nil {
		return err
	}
	var opts metav1.DeleteOptions
	if g, ok := o["grace"]; ok {
		n, err := strconv.ParseInt(g, 10, 64)
		if err != nil {
			return err
		}
		opts.GracePeriodSeconds = &n
	}
	if _, ok := o["force"]; ok {
		opts.GracePeriodSeconds = ptr.To[int64](0)
	}
	return r.api.CoreV1().Pods(namespace).Delete(context.Background(), args[0], opts)
}

// gate sets a condition that somebody other than the agent owns.
func (r *run) gate(args []string) error {
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":%q}]}}`, args[1], args[2])
	_, err := r.api.CoreV1().Pods(namespace).Patch(context.Background(), args[0], "application/strategic-merge-patch+json", []byte(patch), metav1.PatchOptions{}, "status")
	return err
}

// static puts manifests in place, as an editor does.
func (r *run) static(args []string) error {
	for _, a := range args {
		name, _, _ := strings.Cut(a, "=")
		p, err := r.named(a)
		if err != nil {
			return err
		}
		if err := r.place(p, name); err != nil {
			return err
		}
	}
	return nil
}

// place writes a manifest and renames it into place.
func (r *run) place(p *corev1.Pod, name string) error {
	text, err := yaml.Marshal(p)
	if err != nil {
		return err
	}
	path := filepath.Join(r.path("manifests"), name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func (r *run) unstatic(args []string) error {
	for _, file := range args {
		if err := os.Remove(filepath.Join(r.path("manifests"), file)); err != nil {
			return err
		}
	}
	return nil
}

// wait waits until all conditions hold at once.
func (r *run) wait(args []string) error {
	limit := waitLimit
	if last := args[len(args)-1]; strings.HasPrefix(last, "within=") {
		d, err := seconds(strings.TrimPrefix(last, "within="))
		if err != nil {
			return err
		}
		limit, args = d, args[:len(args)-1]
	}
	switch args[0] {
	case "node":
		return r.awaitNode(limit)
	case "lease":
		return r.awaitLease(limit)
	}
	err := r.awaits(args[0], limit, func(p *corev1.Pod) bool {
		return !slices.ContainsFunc(args[1:], func(cond string) bool { return !holds(p, cond) })
	})
	time.Sleep(calm)
	return err
}

// awaitNode waits until the node is ready.
func (r *run) awaitNode(limit time.Duration) error {
	for end := time.Now().Add(limit); ; time.Sleep(100 * time.Millisecond) {
		n, err := r.api.CoreV1().Nodes().Get(context.Background(), node, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		if time.Now().After(end) {
			return fmt.Errorf("the node is not ready within %s: %v", limit, n.Status.Conditions)
		}
	}
}

// awaitLease waits until the agent renews its lease once more.
func (r *run) awaitLease(limit time.Duration) error {
	begin := time.Now()
	for {
		l, err := r.api.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(context.Background(), node, metav1.GetOptions{})
		switch {
		case err != nil && !apierrors.IsNotFound(err):
			return err
		case err == nil && l.Spec.RenewTime != nil && !l.Spec.RenewTime.Time.Before(begin.Truncate(time.Microsecond)):
			return nil
		case time.Since(begin) > limit:
			return fmt.Errorf("the lease is not renewed within %s: %v", limit, l.Spec.RenewTime)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func holds(p *corev1.Pod, cond string) bool {
	if p == nil || cond == "gone" {
		return p == nil && cond == "gone"
	}
	if name, want, ok := strings.Cut(cond, "="); ok {
		c := containerStatus(p, name)
		return c != nil && slices.Contains(strings.Fields(state(c.State)), want)
	}
	if name, want, ok := strings.Cut(cond, "#"); ok {
		c := containerStatus(p, name)
		return c != nil && strconv.Itoa(int(c.RestartCount)) == want && c.State.Running != nil
	}
	switch cond {
	case "Ready", "NotReady":
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady {
				return (c.Status == corev1.ConditionTrue) == (cond == "Ready")
			}
		}
		return false
	}
	return string(p.Status.Phase) == cond
}

func containerStatus(p *corev1.Pod, name string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

func (r *run) exit(args []string) error {
	code, err := strconv.ParseInt(args[2], 10, 32)
	if err != nil {
		return err
	}
	return r.runtime.Exit(args[0], args[1], int32(code))
}

func (r *run) health(args []string, sick bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sick[args[0]+"/"+args[1]] = sick
	return nil
}

// stopSandbox ends a sandbox behind the agent's back as a runtime does when its
// own client asks for it: the containers are killed, and after a while the
// sandbox follows.
func (r *run) stopSandbox(args []string) error {
	for _, p := range r.runtime.Pods() {
		for _, c := range p.Containers {
			if p.Name == namespace+"/"+args[0] && c.Status.State == cri.ContainerState_CONTAINER_RUNNING {
				if err := r.runtime.Exit(args[0], c.Status.Metadata.Name, 137); err != nil {
					return err
				}
			}
		}
	}
	time.Sleep(500 * time.Millisecond)
	return r.runtime.KillSandbox(args[0])
}

// lose takes a container away behind the agent's back, as a user of the
// runtime's own client does.
func (r *run) lose(args []string) error {
	id := ""
	for _, p := range r.runtime.Pods() {
		for _, c := range p.Containers {
			if p.Name == namespace+"/"+args[0] && c.Status.Metadata.Name == args[1] {
				id = c.Status.Id // the newest comes last
			}
		}
	}
	if id == "" {
		return errors.New("there is no such container")
	}
	_, err := r.runtime.RemoveContainer(context.Background(), &cri.RemoveContainerRequest{ContainerId: id})
	return err
}

// removeImage takes an image away behind the agent's back.
func (r *run) removeImage(args []string) error {
	_, err := r.runtime.RemoveImage(context.Background(), &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: args[0]}})
	return err
}

func (r *run) fault(args []string) error {
	o, err := options(args[2:], "pod", "container", "image", "skip", "times", "delay", "fail", "hang", "after", "lie", "idle")
	if err != nil {
		return err
	}
	f := fakecri.Fault{Method: unlessAny(args[1]), Lie: o["lie"], Pod: o["pod"], Container: o["container"], Image: o["image"], Message: o["fail"]}
	if _, fails := o["fail"]; fails {
		f.Code = codes.Unknown
	}
	_, f.Hang = o["hang"]
	_, f.After = o["after"]
	_, f.Idle = o["idle"]
	if err := numbers(o, &f.Skip, &f.Times, &f.Delay); err != nil {
		return err
	}
	r.faults[args[0]] = r.runtime.Inject(f)
	return nil
}

// unlessAny is a selector of faults: the word any selects everything.
func unlessAny(s string) string {
	if s == "any" {
		return ""
	}
	return s
}

func numbers(o map[string]string, skip, times *int, delay *time.Duration) error {
	var errs [3]error
	if s, ok := o["skip"]; ok {
		*skip, errs[0] = strconv.Atoi(s)
	}
	if s, ok := o["times"]; ok {
		*times, errs[1] = strconv.Atoi(s)
	}
	if s, ok := o["delay"]; ok {
		*delay, errs[2] = seconds(s)
	}
	return errors.Join(errs[:]...)
}

func (r *run) apiFault(args []string) error {
	o, err := options(args[3:], "name", "skip", "times", "delay", "code", "retry", "drop", "hang", "after")
	if err != nil {
		return err
	}
	f := apiproxy.Fault{Verb: unlessAny(args[1]), Resource: unlessAny(args[2]), Name: o["name"]}
	if s, ok := o["retry"]; ok {
		if f.RetryAfter, err = seconds(s); err != nil {
			return err
		}
	}
	_, f.Drop = o["drop"]
	_, f.Hang = o["hang"]
	_, f.After = o["after"]
	if s, ok := o["code"]; ok {
		if f.Code, err = strconv.Atoi(s); err != nil {
			return err
		}
	}
	if err := numbers(o, &f.Skip, &f.Times, &f.Delay); err != nil {
		return err
	}
	r.faults[args[0]] = r.proxy.Inject(f)
	return nil
}

func (r *run) hit(args []string) error {
	f, ok := r.faults[args[0]]
	if !ok {
		return fmt.Errorf("there is no fault %s", args[0])
	}
	select {
	case <-f.Hit():
		return nil
	case <-time.After(waitLimit):
		return fmt.Errorf("no call has met fault %s within %s", args[0], waitLimit)
	}
}

// hanging fails when more calls hang on a fault now than there should be.
func (r *run) hanging(args []string) error {
	f, ok := r.faults[args[0]].(interface{ Waiting() int })
	if !ok {
		return fmt.Errorf("there is no fault %s of the runtime", args[0])
	}
	limit, err := strconv.Atoi(args[1])
	if err == nil && f.Waiting() > limit {
		err = fmt.Errorf("%d calls hang", f.Waiting())
	}
	return err
}

// steady lets time pass, in which the process must not come to have more
// goroutines. It is for tests that run alone.
func (r *run) steady(args []string) error {
	before := goruntime.NumGoroutine()
	if err := r.advance(args); err != nil {
		return err
	}
	synctest.Wait()
	if after := goruntime.NumGoroutine(); after > before+steadySlack {
		return fmt.Errorf("there were %d goroutines, and there are %d", before, after)
	}
	return nil
}

func (r *run) release(args []string) error {
	f, ok := r.faults[args[0]]
	if !ok {
		return fmt.Errorf("there is no fault %s", args[0])
	}
	f.Release()
	return nil
}

// runtimeIs takes the runtime away or brings it back; without a word it shows
// what the runtime holds.
func (r *run) runtimeIs(args []string) (string, error) {
	switch first(args) {
	case "":
		return r.showRuntime(), nil
	case "down":
		r.runtime.Disconnect()
	case "up":
		r.connect()
	default:
		return "", fmt.Errorf("the runtime is up or down, not %s", args[0])
	}
	return "", nil
}

// class makes a RuntimeClass; without a handler it takes it away. The handler of
// one that is there is changed as only a deletion and a creation can.
func (r *run) class(args []string) error {
	ctx, classes := context.Background(), r.api.NodeV1().RuntimeClasses()
	err := classes.Delete(ctx, args[0], metav1.DeleteOptions{})
	if len(args) == 1 || err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	_, err = classes.Create(ctx, &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: args[0]}, Handler: args[1]}, metav1.CreateOptions{})
	return err
}

func (r *run) networkIs(how string) error {
	if how != "up" && how != "down" {
		return fmt.Errorf("the network is up or down, not %s", how)
	}
	r.runtime.SetCondition(cri.NetworkReady, how == "up", "", "")
	return nil
}

func (r *run) apiIs(args []string) error {
	states := map[string]apiproxy.Link{"up": apiproxy.Up, "down": apiproxy.Drop, "hang": apiproxy.Hang}
	s, ok := states[args[0]]
	if !ok {
		return fmt.Errorf("the API server is up, down or hang, not %s", args[0])
	}
	r.proxy.SetLink(s)
	return nil
}

func (r *run) calls(args []string) (string, error) {
	pod, timed := "", false
	for _, a := range args {
		if a == "timed" {
			timed = true
		} else {
			pod = a
		}
	}
	after := r.look
	if pod == "" { // a look at one pod is no look at the others
		r.look = r.runtime.LastCall()
	}
	return r.showCalls(after, pod, timed), nil
}

func (r *run) status(args []string) (string, error) {
	p := r.server.Pod(namespace, args[0])
	if p == nil {
		return "gone\n", nil
	}
	return r.showStatus(p), nil
}
