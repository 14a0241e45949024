package script

import (
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"
	"testing/synctest"
	"time"
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
	logged   int // the requests that were looked at
	faults   map[string]fault
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
		"start":   {"", false, quiet(func(r *run, _ []string) error { return r.tryStart() })},
		"stop":    {"", false, quiet(func(r *run, _ []string) error { r.stop(); return nil })},
		"kill":    {"", false, quiet(func(r *run, _ []string) error { r.kill(); return nil })},
		"restart": {"", false, quiet(func(r *run, _ []string) error { r.stop(); r.start(); return nil })},
		"reboot":  {"", false, quiet((*run).reboot)},
		"crash":   {"CALLS", false, quiet((*run).crash)}, // the agent dies after that many calls that change something
		"advance": {"DURATION", false, quiet((*run).advance)},

		"apply":    {"FILE...", false, quiet((*run).apply)},
		"delete":   {"POD [grace=SECONDS|force]", false, quiet((*run).delete)},
		"resize":   {"POD CONTAINER|- [limits.]RESOURCE=AMOUNT...", false, quiet((*run).resize)},
		"label":    {"KEY=VALUE", false, quiet((*run).label)},
		"gate":     {"POD CONDITION True|False", false, quiet((*run).gate)},
		"class":    {"RUNTIMECLASS [HANDLER]", false, quiet((*run).class)},
		"static":   {"FILE...", false, quiet((*run).static)},
		"unstatic": {"FILE...", false, quiet((*run).unstatic)},
		"wait":     {"node|lease|POD Pending|Running|Succeeded|Failed|Ready|NotReady|gone|CONTAINER=STATE|CONTAINER#RESTARTS...", false, quiet((*run).wait)},

		"overwrite": {"POD STATUS", false, quiet((*run).overwrite)}, // another client writes fields of the status, as JSON
		"replace":   {"FILE...", false, quiet((*run).replace)},
		"restore":   {"FILE...", false, quiet((*run).restore)},
		"requests":  {"POD", true, func(r *run, a []string) (string, error) { return r.showRequests(a[0]), nil }},

		"exit":         {"POD CONTAINER CODE", false, quiet((*run).exit)},
		"oom":          {"POD CONTAINER", false, quiet(func(r *run, a []string) error { return r.runtime.OOMKill(a[0], a[1]) })},
		"kill-sandbox": {"POD", false, quiet(func(r *run, a []string) error { return r.runtime.KillSandbox(a[0]) })},
		"stop-sandbox": {"POD", false, quiet((*run).stopSandbox)},
		"sick":         {"POD CONTAINER", false, quiet(func(r *run, a []string) error { return r.health(a, true) })},
		"well":         {"POD CONTAINER", false, quiet(func(r *run, a []string) error { return r.health(a, false) })},
		"remove-image": {"IMAGE", false, quiet((*run).removeImage)},
		"lose":         {"POD [CONTAINER]", false, quiet((*run).lose)},

		"leaves":    {"SIGNAL=AMOUNT|?...", false, quiet((*run).leaves)}, // on the node, beside what pods use
		"uses":      {"POD CONTAINER [memory=|processes=|logs=|layer=|VOLUME=AMOUNT]...", false, quiet((*run).use)},
		"bulk":      {"IMAGE AMOUNT", false, quiet((*run).bulk)},
		"pressures": {"", true, (*run).pressures},

		"fault":     {"NAME METHOD [pod=POD] [container=NAME] [image=IMAGE] [skip=N] [times=N] [delay=DURATION] [fail=MESSAGE] [hang] [after] [lie=LIE] [idle] [dies] [late=DURATION]", false, quiet((*run).fault)},
		"api-fault": {"NAME VERB RESOURCE [name=NAME] [skip=N] [times=N] [delay=DURATION] [code=CODE] [retry=DURATION] [drop] [hang] [after]", false, quiet((*run).apiFault)},
		"hanging":   {"NAME LIMIT", false, quiet((*run).hanging)},
		"steady":    {"DURATION", false, quiet((*run).steady)},
		"hit":       {"NAME", false, quiet((*run).hit)},
		"release":   {"NAME", false, quiet((*run).release)},
		"runtime":   {"[up|down]", true, (*run).runtimeIs},
		"network":   {"up|down", false, quiet(func(r *run, a []string) error { return r.networkIs(a[0]) })},
		"machine": {"[leaving|staying|deaf|back]", true, func(r *run, a []string) (string, error) {
			if len(a) == 0 {
				return r.showMachine()
			}
			return "", r.machineIs(a)
		}},
		"api": {"up|down|hang", false, quiet((*run).apiIs)},

		"pulls":     {"", true, func(r *run, _ []string) (string, error) { return r.showPulls(), nil }},
		"calls":     {"[POD] [timed]", true, (*run).calls},
		"status":    {"POD", true, (*run).status},
		"resources": {"POD", true, (*run).resources},
		"cpus":      {"", true, func(r *run, _ []string) (string, error) { return r.showCPUs() }},
		"explain":   {"[POD [drawn]]", true, (*run).explain}, // what kubelet explain says; a list without a pod
		"events":    {"[POD]", true, func(r *run, a []string) (string, error) { return r.showEvents(first(a)), nil }},
		"left":      {"", true, func(r *run, _ []string) (string, error) { return r.showLeft() }},

		"plugin":       {"RESOURCE DEVICE...", false, quiet((*run).plugin)},
		"unplug":       {"RESOURCE", false, quiet((*run).unplug)},
		"device":       {"RESOURCE DEVICE well|ill|gone", false, quiet((*run).device)},
		"plugin-fault": {"RESOURCE METHOD hang|fail=TEXT|works", false, quiet((*run).pluginFault)},
		"asked":        {"", true, func(r *run, _ []string) (string, error) { return r.showAsked(), nil }},
		"given":        {"POD CONTAINER", true, func(r *run, a []string) (string, error) { return r.showGiven(a[0], a[1]) }},
		"node-has":     {"RESOURCE", true, func(r *run, a []string) (string, error) { return r.showNodeHas(a[0]), nil }},
		"health":       {"POD", true, func(r *run, a []string) (string, error) { return r.showHealth(a[0]), nil }},

		"driver":       {"DRIVER", false, quiet((*run).driver)}, // of claims: it comes, or comes back
		"undriver":     {"DRIVER", false, quiet((*run).undriver)},
		"driver-fault": {"DRIVER METHOD hang|fail=TEXT|works", false, quiet((*run).driverFault)},
		"reserve":      {"CLAIM DRIVER POD...", false, quiet((*run).reserve)}, // a device of the driver for these pods
		"prepared":     {"", true, func(r *run, _ []string) (string, error) { return r.showPrepared(), nil }},
		"driver-calls": {"", true, func(r *run, _ []string) (string, error) { return r.showDriverCalls(), nil }},

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
