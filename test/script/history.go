package script

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// History generates a scenario at random: actions of users, programs, the runtime and the API server,
// and crashes, in any order. The same seed gives the same scenario. A step may fail, for example the
// exit of a container that does not run: then nothing happens.
func History(seed uint64) (*Scenario, error) {
	l := &lot{Rand: rand.New(rand.NewPCG(seed, 0)), up: true, shapes: map[string]string{}}
	// Short periods, so that a node comes to rest soon.
	l.say("config: crashLoopBackOff: {maxContainerRestartPeriod: 60s}")
	l.say("config: nodeStatusUpdateFrequency: 60s\n")
	for n := 8 + l.IntN(25); n > 0; n-- {
		l.happens()
		if l.one(3) {
			continue // at the same moment
		}
		l.say("advance %s", l.while())
	}
	return Parse(fmt.Sprintf("seed-%d", seed), l.script.String()+"\n"+l.files.String())
}

// lot is a history that is being generated.
type lot struct {
	*rand.Rand
	script, files strings.Builder

	pods, gone, statics []string
	shapes              map[string]string // of pods whose image may be changed
	named, faults       int
	up                  bool // the agent was started
}

func (l *lot) say(format string, args ...any) { fmt.Fprintf(&l.script, format+"\n", args...) }

// one is true with a probability of 1/n.
func (l *lot) one(n int) bool { return l.IntN(n) == 0 }

func (l *lot) of(words ...string) string { return words[l.IntN(len(words))] }

// while is a duration of a random order of magnitude: steps that follow at once and steps that come
// when the node is at rest find different defects.
func (l *lot) while() string {
	ms := 1 + l.IntN(9)
	for range l.IntN(6) {
		ms *= 10
	}
	return fmt.Sprintf("%dms", min(ms, 400_000))
}

// happens adds one step.
func (l *lot) happens() {
	switch n := l.IntN(100); {
	case n < 22 || len(l.pods) == 0:
		l.arrives()
	case n < 34:
		l.leaves()
	case n < 41:
		l.manifests()
	case n < 44:
		l.changes()
	case n < 47:
		l.resizes()
	case n < 55:
		l.program()
	case n < 61:
		l.sandbox()
	case n < 74:
		l.agent()
	case n < 79:
		l.say("runtime %s", l.of("down", "up"))
	case n < 83:
		l.say("api %s", l.of("down", "hang", "up", "up"))
	case n < 93:
		l.runtimeFault()
	default:
		l.apiFault()
	}
}

// arrives creates a new pod, or again one that was deleted.
func (l *lot) arrives() {
	if len(l.gone) > 0 && l.one(4) {
		i := l.IntN(len(l.gone))
		name := l.gone[i]
		l.gone = append(l.gone[:i], l.gone[i+1:]...)
		l.pods = append(l.pods, name)
		l.say("apply %s.yaml", name)
		return
	}
	if l.one(8) {
		defer l.arrives() // at the same moment
	}
	l.named++
	name, policy := fmt.Sprintf("p%d", l.named), l.of("Always", "Always", "OnFailure", "Never")
	l.pods = append(l.pods, name)
	shape := l.pod(policy)
	if policy == "Always" {
		l.shapes[name] = shape
	}
	fmt.Fprintf(&l.files, "-- %s.yaml --\n%s", name, shape)
	l.say("apply %s.yaml", name)
}

// changes changes the image of a container.
func (l *lot) changes() {
	name := l.pods[l.IntN(len(l.pods))]
	shape, may := l.shapes[name]
	if !may {
		return
	}
	l.named++
	fmt.Fprintf(&l.files, "-- %s-%d.yaml --\n%s", name, l.named,
		strings.ReplaceAll(shape, "{name: main", fmt.Sprintf("{name: main, image: 'app:%d'", 2+l.IntN(3))))
	l.say("apply %s=%s-%d.yaml", name, name, l.named)
}

// resizes changes the resources of a container.
func (l *lot) resizes() {
	pod, name := l.container()
	l.say("resize %s %s cpu=%dm limits.memory=%dMi", pod, name, 5+l.IntN(40), 64+l.IntN(64))
}

func (l *lot) leaves() {
	i := l.IntN(len(l.pods))
	name := l.pods[i]
	l.pods = append(l.pods[:i], l.pods[i+1:]...)
	l.gone = append(l.gone, name)
	l.say("delete %s%s", name, l.of("", "", " grace=1", " grace=20", " force"))
}

// manifests adds, changes or removes a static pod.
func (l *lot) manifests() {
	if n := len(l.statics); n > 0 && l.one(3) {
		l.say("unstatic %s.yaml", l.statics[n-1])
		l.statics = l.statics[:n-1]
		return
	}
	name := fmt.Sprintf("s%d", 1+l.IntN(2))
	l.named++
	fmt.Fprintf(&l.files, "-- %s-%d.yaml --\n%s", name, l.named, l.pod("Always"))
	l.say("static %s.yaml=%s-%d.yaml", name, name, l.named)
	for _, s := range l.statics {
		if s == name {
			return
		}
	}
	l.statics = append(l.statics, name)
}

// container selects a container of a pod. The name of a static pod in the runtime has the name of the node as a suffix.
func (l *lot) container() (pod, name string) {
	pod = l.pods[l.IntN(len(l.pods))]
	if n := len(l.statics); n > 0 && l.one(5) {
		pod = l.statics[l.IntN(n)] + "-" + Node
	}
	return pod, l.of("main", "main", "main", "other", "side", "init")
}

func (l *lot) program() {
	pod, name := l.container()
	switch l.IntN(6) {
	case 0:
		l.say("oom %s %s", pod, name)
	case 1:
		l.say("sick %s %s", pod, name)
	case 2:
		l.say("well %s %s", pod, name)
	default:
		l.say("exit %s %s %d", pod, name, l.IntN(3))
	}
}

func (l *lot) sandbox() {
	pod, _ := l.container()
	if name := l.of("main", "other"); l.one(4) && l.shapes[pod] != "" {
		l.say("lose %s %s", pod, name)
		return
	}
	l.say("%s %s", l.of("kill-sandbox", "stop-sandbox"), pod)
}

func (l *lot) agent() {
	switch {
	case !l.up:
		l.say("start")
		l.up = true
	case l.one(2):
		l.say("crash %d", 1+l.IntN(8))
	case l.one(3):
		l.say("restart")
	default:
		l.say("%s", l.of("kill", "stop"))
		l.up = false
	}
}

// how selects how a call fails: before it takes effect, or after that.
func (l *lot) how(fails string) string {
	how := l.of(fails, fails, "delay="+l.while(), "hang")
	if l.one(2) {
		how += " after"
	}
	if l.one(3) {
		how += fmt.Sprintf(" skip=%d", 1+l.IntN(3))
	}
	return how + fmt.Sprintf(" times=%d", 1+l.IntN(4))
}

func (l *lot) runtimeFault() {
	l.faults++
	method := l.of("RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "StopPodSandbox",
		"RemoveContainer",
		"RemovePodSandbox", "PullImage", "ListContainers", "ListPodSandbox", "ContainerStatus", "PodSandboxStatus",
		"ImageStatus", "Status")
	l.say("fault f%d %s %s", l.faults, method, l.how(l.of("fail=unwell", "fail=unwell", "dies", "late="+l.while())))
	if l.one(2) {
		l.say("advance %s", l.while())
		l.say("release f%d", l.faults)
	}
}

func (l *lot) apiFault() {
	l.faults++
	l.say("api-fault f%d %s %s %s", l.faults, l.of("get", "list", "watch", "create", "patch", "delete", "any"),
		l.of("pods", "pods", "nodes", "leases", "configmaps", "any"),
		l.how(l.of("code=409", "code=429", "code=500", "drop")))
	if l.one(2) {
		l.say("advance %s", l.while())
		l.say("release f%d", l.faults)
	}
}

// pod generates a pod.
func (l *lot) pod(policy string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "spec:\n  restartPolicy: %s\n  automountServiceAccountToken: false\n", policy)
	if l.one(2) {
		fmt.Fprintf(&b, "  terminationGracePeriodSeconds: %d\n", 1+l.IntN(40))
	}
	if l.one(15) {
		fmt.Fprintf(&b, "  activeDeadlineSeconds: %d\n", 1+l.IntN(200))
	}
	volumes := l.one(4)
	if volumes {
		b.WriteString(
			"  volumes: [{name: scratch, emptyDir: {}}, {name: conf, configMap: {name: conf, optional: true}}]\n")
	}
	if side, first := l.one(4), l.one(3); side || first {
		b.WriteString("  initContainers:\n")
		if side {
			b.WriteString("  - {name: side, restartPolicy: Always" + l.probes() + "}\n")
		}
		if first {
			fmt.Fprintf(&b, "  - {name: init, command: [sh, -c, 'sleep %d; exit %s']}\n", l.IntN(6),
				l.of("0", "0", "0", "0", "0", "1"))
		}
	}
	b.WriteString("  containers:\n")
	for _, name := range []string{"main", "other"}[:1+l.IntN(2)] {
		fmt.Fprintf(&b, "  - {name: %s", name)
		if name == "other" && l.one(4) {
			b.WriteString(", image: 'far:1'")
		}
		switch l.IntN(8) {
		case 0:
			fmt.Fprintf(&b, ", command: [sh, -c, 'sleep %d; exit %d']", l.IntN(90), l.IntN(2))
		case 1:
			b.WriteString(`, command: [sh, -c, "trap '' TERM; sleep infinity"]`)
		}
		if volumes {
			b.WriteString(", volumeMounts: [{name: scratch, mountPath: /scratch}, {name: conf, mountPath: /conf}]")
		}
		if l.one(3) {
			b.WriteString(", resources: {requests: {cpu: 10m, memory: 32Mi}, limits: {memory: 96Mi}}")
		}
		b.WriteString(l.probes())
		if l.one(8) {
			fmt.Fprintf(&b, ", lifecycle: {%s: {exec: {command: [sh, -c, 'sleep %d']}}}", l.of("preStop", "postStart"),
				1+l.IntN(5))
		}
		b.WriteString("}\n")
	}
	return b.String()
}

func (l *lot) probes() string {
	out := ""
	for _, kind := range []string{"readinessProbe", "livenessProbe", "startupProbe"} {
		if l.one(5) {
			out += fmt.Sprintf(", %s: {exec: {command: [healthy]}, periodSeconds: %d}", kind, 1+l.IntN(10))
		}
	}
	return out
}
