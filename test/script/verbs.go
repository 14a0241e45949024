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
	// Image is the image of containers that name none. It exists on the node.
	Image = "app:1"
	// waitLimit is virtual time: it is reached only if nothing happens any more.
	waitLimit = time.Hour
	// calm is how long a wait continues after its condition holds, so that the effects of the change are complete.
	// It is longer than the 300 ms for which the agent delays some statuses.
	calm = 350 * time.Millisecond
	// steadySlack is the number of goroutines that may exist temporarily, for example for a heartbeat or a new watch.
	steadySlack = 4
)

// Run is one execution of a scenario.
type Run struct {
	*World
	Scenario *Scenario
	look     int // the sequence number of the last call that was shown
	logged   int // the number of requests that were shown
	faults   map[string]fault
}

// verb executes a command, and returns its output.
type verb struct {
	usage string
	shows bool // its block is compared
	do    func(r *Run, args []string) (string, error)
}

var verbs map[string]verb

func init() {
	verbs = map[string]verb{
		"start":   {"", false, quiet(func(r *Run, _ []string) error { return r.tryStart() })},
		"stop":    {"", false, quiet(func(r *Run, _ []string) error { r.Stop(); return nil })},
		"kill":    {"", false, quiet(func(r *Run, _ []string) error { r.kill(); return nil })},
		"restart": {"", false, quiet(func(r *Run, _ []string) error { r.Stop(); r.Start(); return nil })},
		"reboot":  {"", false, quiet((*Run).reboot)},
		"crash":   {"CALLS", false, quiet((*Run).crash)}, // number of writing calls before the kill
		"advance": {"DURATION", false, quiet((*Run).advance)},

		"apply":    {"FILE...", false, quiet((*Run).apply)},
		"delete":   {"POD [grace=SECONDS|force]", false, quiet((*Run).delete)},
		"resize":   {"POD CONTAINER|- [limits.]RESOURCE=AMOUNT...", false, quiet((*Run).resize)},
		"label":    {"KEY=VALUE", false, quiet((*Run).label)},
		"gate":     {"POD CONDITION True|False", false, quiet((*Run).gate)},
		"class":    {"RUNTIMECLASS [HANDLER]", false, quiet((*Run).class)},
		"static":   {"FILE...", false, quiet((*Run).Static)},
		"unstatic": {"FILE...", false, quiet((*Run).unstatic)},
		"wait": {
			"node|lease|POD Pending|Running|Succeeded|Failed|Ready|NotReady|gone|CONTAINER=STATE|CONTAINER#RESTARTS...",
			false,
			quiet((*Run).wait),
		},

		// another client writes fields of the status, as JSON
		"overwrite": {"POD STATUS", false, quiet((*Run).overwrite)},
		"replace":   {"FILE...", false, quiet((*Run).replace)},
		"restore":   {"FILE...", false, quiet((*Run).restore)},
		"requests":  {"POD", true, func(r *Run, a []string) (string, error) { return r.showRequests(a[0]), nil }},

		"exit": {"POD CONTAINER CODE", false, quiet((*Run).exit)},
		"oom": {"POD CONTAINER", false,
			quiet(func(r *Run, a []string) error { return r.Runtime.OOMKill(a[0], a[1]) })},
		"kill-sandbox": {"POD", false, quiet(func(r *Run, a []string) error { return r.Runtime.KillSandbox(a[0]) })},
		"stop-sandbox": {"POD", false, quiet((*Run).stopSandbox)},
		"sick":         {"POD CONTAINER", false, quiet(func(r *Run, a []string) error { return r.health(a, true) })},
		"well":         {"POD CONTAINER", false, quiet(func(r *Run, a []string) error { return r.health(a, false) })},
		"remove-image": {"IMAGE", false, quiet((*Run).removeImage)},
		"lose":         {"POD [CONTAINER]", false, quiet((*Run).lose)},

		"leaves":    {"SIGNAL=AMOUNT|?...", false, quiet((*Run).leaves)}, // available, without the usage of pods
		"uses":      {"POD CONTAINER [memory=|processes=|logs=|layer=|VOLUME=AMOUNT]...", false, quiet((*Run).use)},
		"bulk":      {"IMAGE AMOUNT", false, quiet((*Run).bulk)},
		"pressures": {"", true, (*Run).pressures},

		"fault":     {"NAME METHOD [pod=POD] [container=NAME] [image=IMAGE] [skip=N] [times=N] [delay=DURATION] [fail=MESSAGE] [hang] [after] [lie=LIE] [idle] [dies] [late=DURATION]", false, quiet((*Run).fault)},
		"api-fault": {"NAME VERB RESOURCE [name=NAME] [skip=N] [times=N] [delay=DURATION] [code=CODE] [retry=DURATION] [drop] [hang] [after]", false, quiet((*Run).apiFault)},
		"hanging":   {"NAME LIMIT", false, quiet((*Run).hanging)},
		"steady":    {"DURATION", false, quiet((*Run).steady)},
		"hit":       {"NAME", false, quiet((*Run).hit)},
		"release":   {"NAME", false, quiet((*Run).release)},
		"runtime":   {"[up|down]", true, (*Run).runtimeIs},
		"network":   {"up|down", false, quiet(func(r *Run, a []string) error { return r.networkIs(a[0]) })},
		"machine": {"[leaving|staying|deaf|back]", true, func(r *Run, a []string) (string, error) {
			if len(a) == 0 {
				return r.showMachine()
			}
			return "", r.machineIs(a)
		}},
		"api": {"up|down|hang", false, quiet((*Run).apiIs)},

		"pulls":     {"", true, func(r *Run, _ []string) (string, error) { return r.showPulls(), nil }},
		"calls":     {"[POD] [timed]", true, (*Run).calls},
		"status":    {"POD", true, (*Run).status},
		"resources": {"POD", true, (*Run).resources},
		"cpus":      {"", true, func(r *Run, _ []string) (string, error) { return r.showCPUs() }},
		"explain":   {"[POD [drawn]]", true, (*Run).explain}, // the output of kubelet explain; a list without a pod
		"events":    {"[POD]", true, func(r *Run, a []string) (string, error) { return r.ShowEvents(first(a)), nil }},
		"left":      {"", true, func(r *Run, _ []string) (string, error) { return r.showLeft() }},

		"plugin":       {"RESOURCE DEVICE...", false, quiet((*Run).plugin)},
		"unplug":       {"RESOURCE", false, quiet((*Run).unplug)},
		"device":       {"RESOURCE DEVICE well|ill|gone", false, quiet((*Run).device)},
		"plugin-fault": {"RESOURCE METHOD hang|fail=TEXT|works", false, quiet((*Run).pluginFault)},
		"asked":        {"", true, func(r *Run, _ []string) (string, error) { return r.showAsked(), nil }},
		"given": {"POD CONTAINER", true,
			func(r *Run, a []string) (string, error) { return r.showGiven(a[0], a[1]) }},
		"node-has": {"RESOURCE", true, func(r *Run, a []string) (string, error) { return r.showNodeHas(a[0]), nil }},
		"health":   {"POD", true, func(r *Run, a []string) (string, error) { return r.showHealth(a[0]), nil }},

		"driver":       {"DRIVER", false, quiet((*Run).driver)}, // starts a DRA driver, or starts it again
		"undriver":     {"DRIVER", false, quiet((*Run).undriver)},
		"driver-fault": {"DRIVER METHOD hang|fail=TEXT|works", false, quiet((*Run).driverFault)},
		"reserve":      {"CLAIM DRIVER POD...", false, quiet((*Run).reserve)}, // a device of the driver for these pods
		"prepared":     {"", true, func(r *Run, _ []string) (string, error) { return r.showPrepared(), nil }},
		"driver-calls": {"", true, func(r *Run, _ []string) (string, error) { return r.showDriverCalls(), nil }},

		"put":     {"FILE...", false, quiet((*Run).put)},
		"take":    {"KIND NAME", false, quiet((*Run).take)},
		"mounted": {"[POD]", true, func(r *Run, a []string) (string, error) { return r.showMounted(first(a)) }},
		"mounts": {"POD CONTAINER", true,
			func(r *Run, a []string) (string, error) { return r.showMounts(a[0], a[1]) }},
		"token": {"POD CONTAINER PATH", true,
			func(r *Run, a []string) (string, error) { return r.showToken(a[0], a[1], a[2]) }},
		"statuses": {"POD", true, (*Run).showVolumeStatuses},
		"read": {"POD CONTAINER PATH", true,
			func(r *Run, a []string) (string, error) { return r.read(a[0], a[1], a[2]) }},
	}
}

func quiet(f func(*Run, []string) error) func(*Run, []string) (string, error) {
	return func(r *Run, args []string) (string, error) { return "", f(r, args) }
}

func first(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// do executes one step, and waits until everything that follows from it at the same
// moment has happened.
func (r *Run) do(st step) (string, error) {
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

func (r *Run) advance(args []string) error {
	d, err := seconds(args[0])
	time.Sleep(d)
	return err
}

// steady waits for a time in which the number of goroutines of the process must not
// increase. It is for tests that do not run in parallel.
func (r *Run) steady(args []string) error {
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

func (r *Run) calls(args []string) (string, error) {
	pod, timed := "", false
	for _, a := range args {
		if a == "timed" {
			timed = true
		} else {
			pod = a
		}
	}
	after := r.look
	if pod == "" { // the calls of other pods have not been shown
		r.look = r.Runtime.LastCall()
	}
	return r.showCalls(after, pod, timed), nil
}

func (r *Run) status(args []string) (string, error) {
	p := r.Server.Pod(Namespace, args[0])
	if p == nil {
		return "gone\n", nil
	}
	return r.showStatus(p), nil
}
