package differ

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestRuleForAmountsOfInitContainers(t *testing.T) {
	amount := func(container string) corev1.EnvVar {
		return corev1.EnvVar{
			Name: "MEMORY",
			ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{
				ContainerName: container,
				Resource:      "limits.memory",
			}},
		}
	}
	for _, tc := range []struct {
		what, named, where, theirs string
		ruled                      bool
	}{
		{"of an init container", "init", "CreateContainer config.envs[MEMORY].value", "0", true},
		{"of a regular container", "main", "CreateContainer config.envs[MEMORY].value", "0", false},
		{"of itself", "", "CreateContainer config.envs[MEMORY].value", "0", false},
		{"of an init container, not 0", "init", "CreateContainer config.envs[MEMORY].value", "7", false},
		{"another variable", "init", "CreateContainer config.envs[OTHER].value", "0", false},
	} {
		p := &corev1.Pod{Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "init", Env: []corev1.EnvVar{amount(tc.named)}}},
			Containers:     []corev1.Container{{Name: "main"}},
		}}
		d := Difference{
			Kind:   "request",
			Where:  tc.where,
			Ours:   "24",
			Theirs: tc.theirs,
			Life:   &Life{Pod: p},
			scene:  &scene{},
		}
		if got := ruleFor(d) != nil; got != tc.ruled {
			t.Errorf("%s: ruled %v, want %v", tc.what, got, tc.ruled)
		}
	}
}

func TestRuleForFilesOfTerminationMessages(t *testing.T) {
	const one, other = "-rw-rw-rw- owner 0:0 content one", "-rw-rw-rw- owner 0:0 content "
	for _, tc := range []struct {
		what, where  string
		ours, theirs []string
		ruled        bool
	}{
		{"that of a removed container", "containers/main/RANDOM", []string{one}, []string{other, one}, true},
		{"one that upstream does not have", "containers/main/RANDOM", []string{one}, []string{other, other}, false},
		{"more than upstream has", "containers/main/RANDOM", []string{one, one}, []string{one}, false},
		{"none at all", "containers/main/RANDOM", []string{absent}, []string{one}, false},
		{"another file", "etc-hosts", []string{one}, []string{other, one}, false},
	} {
		d := Difference{
			Kind:   "file",
			Where:  tc.where,
			Ours:   strings.Join(tc.ours, alsoFile),
			Theirs: strings.Join(tc.theirs, alsoFile),
			Life:   &Life{Pod: &corev1.Pod{}},
			scene:  &scene{},
		}
		if got := ruleFor(d) != nil; got != tc.ruled {
			t.Errorf("%s: ruled %v, want %v", tc.what, got, tc.ruled)
		}
	}
}

func TestRuleForOrphansKnowsEphemeralContainers(t *testing.T) {
	forced := &Life{Pod: &corev1.Pod{}, Acts: []Act{{Steps: []Step{{Verb: create}, {Verb: remove, Grace: 0}}}}}
	within := func(s string) string { return "StopContainer extra#0 within " + s + " s" }
	for _, tc := range []struct {
		theirs string
		ruled  bool
	}{{within("2"), true}, {within("7"), false}} {
		d := Difference{
			Kind:   "call",
			Where:  tc.theirs,
			Ours:   absent,
			Theirs: tc.theirs,
			Life:   forced,
			scene:  &scene{asked: [2][]string{{within("30")}, {tc.theirs}}},
		}
		if got := ruleFor(d) != nil; got != tc.ruled {
			t.Errorf("%s: ruled %v, want %v", tc.theirs, got, tc.ruled)
		}
	}
}

// TestRuleForARuntimeThatIsAway checks statuses that show a failed call while the runtime is down.
func TestRuleForARuntimeThatIsAway(t *testing.T) {
	const away = `container main: waiting ImageInspectError "Failed to inspect image \"app:1\": rpc error: code = Unavailable desc = `
	for _, tc := range []struct {
		what, kind, text, between string
		ruled                     bool
	}{
		{"a status", "seen", away, restartRuntime, true},
		{"a status while the runtime ran", "seen", away, restartAgent, false},
		{"a status at rest", "pod", away, restartRuntime, false},
		{"another status", "seen", "container main: running", restartRuntime, false},
	} {
		d := Difference{
			Kind:    tc.kind,
			Where:   "container main",
			Ours:    tc.text,
			Theirs:  absent,
			Life:    &Life{Pod: &corev1.Pod{}},
			Between: []string{tc.between},
			scene:   &scene{},
		}
		if got := ruleFor(d) != nil; got != tc.ruled {
			t.Errorf("%s: ruled %v, want %v", tc.what, got, tc.ruled)
		}
	}
}

// TestRuleForTheLastStateOfAnInitContainer checks an init container whose first sandbox was lost.
func TestRuleForTheLastStateOfAnInitContainer(t *testing.T) {
	only := &Life{Pod: &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "init"}},
		Containers:     []corev1.Container{{Name: "main"}},
	}}}
	const ended = "terminated.exitCode=143 terminated.reason=Error"
	for _, tc := range []struct {
		what, where, ours, theirs string
		sandboxes                 []string
		ruled                     bool
	}{
		{"lost upstream", "status.initContainerStatuses[init].lastState", ended, "{}", []string{"RunPodSandbox#1"}, true},
		{"lost here", "status.initContainerStatuses[init].lastState", "{}", ended, []string{"RunPodSandbox#1"}, false},
		{"with one sandbox", "status.initContainerStatuses[init].lastState", ended, "{}", []string{"RunPodSandbox#0"}, false},
		{"of another container", "status.containerStatuses[main].lastState", ended, "{}", []string{"RunPodSandbox#1"}, false},
		{"the state", "status.initContainerStatuses[init].state", ended, "{}", []string{"RunPodSandbox#1"}, false},
	} {
		d := Difference{
			Kind:   "pod",
			Where:  tc.where,
			Ours:   tc.ours,
			Theirs: tc.theirs,
			Life:   only,
			scene:  &scene{asked: [2][]string{tc.sandboxes, tc.sandboxes}},
		}
		if got := ruleFor(d) != nil; got != tc.ruled {
			t.Errorf("%s: ruled %v, want %v", tc.what, got, tc.ruled)
		}
	}
}

// TestRuleForASidecarAfterAProbe looks at the stop of a sidecar whose pod ended with a container that failed a probe.
func TestRuleForASidecarAfterAProbe(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	p := &corev1.Pod{Spec: corev1.PodSpec{ // with the default grace period
		InitContainers: []corev1.Container{{Name: "side", RestartPolicy: &always}},
		Containers:     []corev1.Container{{Name: "main"}},
	}}
	const probe, plain = "Normal Killing: Container main failed liveness probe, about main", "Normal Killing: Stopping container main"
	stop := func(name, within string) string { return "StopContainer " + name + "#1 within " + within + " s" }
	for _, tc := range []struct {
		what, name, ours, theirs, killing string
		ended, ruled                      bool
	}{
		{"the rest upstream", "side", "30", "17", probe, true, true},
		{"the rest here", "side", "17", "30", probe, true, false},
		{"another grace period", "side", "29", "17", probe, true, false},
		{"of a regular container", "main", "30", "17", probe, true, false},
		{"of a pod that was deleted", "side", "30", "17", plain, true, false},
		{"of a pod that goes on", "side", "30", "17", probe, false, false},
	} {
		ours, theirs := stop(tc.name, tc.ours), stop(tc.name, tc.theirs)
		for _, d := range []Difference{{Ours: ours, Theirs: absent}, {Ours: absent, Theirs: theirs}} {
			d.Kind, d.Where, d.Life = "call", ours, &Life{Pod: p}
			d.scene = &scene{
				asked:    [2][]string{{ours}, {theirs}},
				reported: [2][]string{{tc.killing}, {plain}},
				ended:    [2]bool{tc.ended, tc.ended},
			}
			if got := ruleFor(d) != nil; got != tc.ruled {
				t.Errorf("%s: ruled %v, want %v", tc.what, got, tc.ruled)
			}
		}
	}
}

// TestRuleForADeferredResize checks a resize that one agent has retried after the pressure, and the other not yet.
func TestRuleForADeferredResize(t *testing.T) {
	const deferred = "Warning ResizeDeferred: Pod resize Deferred: The node had condition: [DiskPressure]. , about Pod"
	for _, tc := range []struct {
		what, where, between string
		reported             [2][]string
		ruled                bool
	}{
		{"allocated", "status.allocatedResources.cpu", pressNode, [2][]string{{deferred}, {deferred}}, true},
		{"the condition", "status.conditions[PodResizePending]", pressNode, [2][]string{{deferred}, {deferred}}, true},
		{"not deferred here", "status.allocatedResources.cpu", pressNode, [2][]string{nil, {deferred}}, false},
		{"without pressure", "status.allocatedResources.cpu", restartAgent, [2][]string{{deferred}, {deferred}}, false},
		{"another condition", "status.conditions[Ready]", pressNode, [2][]string{{deferred}, {deferred}}, false},
	} {
		d := Difference{
			Kind:    "pod",
			Where:   tc.where,
			Ours:    "4m",
			Theirs:  "2m",
			Between: []string{tc.between},
			Life:    &Life{Pod: &corev1.Pod{}},
			scene:   &scene{reported: tc.reported},
		}
		if got := ruleFor(d) != nil; got != tc.ruled {
			t.Errorf("%s: ruled %v, want %v", tc.what, got, tc.ruled)
		}
	}
}

// TestRuleForAPodThatCountsAsInitialized looks at a container that did not start before the pod was terminated.
func TestRuleForAPodThatCountsAsInitialized(t *testing.T) {
	const (
		lost    = "terminated.exitCode=137 terminated.reason=ContainerStatusUnknown"
		waiting = "waiting.message=none waiting.reason=CreateContainerConfigError"
		ran     = "terminated.exitCode=137 terminated.reason=Error"
		where   = "status.containerStatuses[main].state"
	)
	for _, tc := range []struct {
		what, where, ours, theirs string
		init, ended, ruled        bool
	}{
		{"initialized here", where, lost, waiting, true, true, true},
		{"initialized upstream", where, waiting, lost, true, true, true},
		{"it ran", where, ran, waiting, true, true, false},
		{"no init container", where, lost, waiting, false, true, false},
		{"not terminated", where, lost, waiting, true, false, false},
		{"of an init container", "status.initContainerStatuses[init].state", lost, waiting, true, true, false},
	} {
		p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}
		if tc.init {
			p.Spec.InitContainers = []corev1.Container{{Name: "init"}}
		}
		d := Difference{
			Kind:   "pod",
			Where:  tc.where,
			Ours:   tc.ours,
			Theirs: tc.theirs,
			Life:   &Life{Pod: p},
			scene:  &scene{ended: [2]bool{tc.ended, tc.ended}},
		}
		if got := ruleFor(d) != nil; got != tc.ruled {
			t.Errorf("%s: ruled %v, want %v", tc.what, got, tc.ruled)
		}
	}
}

// TestRuleForAttemptsAfterAFailedStart checks a request for an attempt whose number differs because a start failed.
func TestRuleForAttemptsAfterAFailedStart(t *testing.T) {
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}, {Name: "other"}}}}
	for _, tc := range []struct {
		what, at, failed string
		ruled            bool
	}{
		{"of the container", "CreateContainer main#1", "StartContainer main#0 fails", true},
		{"of another container", "CreateContainer other#1", "StartContainer main#0 fails", false},
		{"whose starts succeeded", "CreateContainer main#1", "StartContainer main#0", false},
	} {
		d := Difference{
			Kind:   "request",
			At:     tc.at,
			Where:  "CreateContainer config.image.userSpecifiedImage",
			Ours:   "app:2",
			Theirs: "app:1",
			Life:   &Life{Pod: p},
			scene:  &scene{asked: [2][]string{nil, {tc.failed}}},
		}
		if got := ruleFor(d) != nil; got != tc.ruled {
			t.Errorf("%s: ruled %v, want %v", tc.what, got, tc.ruled)
		}
	}
}

func TestRuleForAContainerThatWaitsForItsNewImage(t *testing.T) {
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}, {Name: "other"}}}}
	both := []string{
		"Normal Killing: Container main definition changed, will be restarted, about Pod spec.containers{main}",
		`Warning Failed: Error: no space, about Pod spec.containers{main}`,
	}
	failed := "CreateContainer main#1 fails"
	again := []string{failed, "CreateContainer main#1", "StartContainer main#1"}
	for _, tc := range []struct {
		what, where  string
		reported     []string
		ours, theirs []string
		ended        [2]bool
		ruled        bool
	}{
		{"started again by ours", "containerStatuses[main].image", both, again, []string{failed}, [2]bool{}, true},
		{"started again by both", "containerStatuses[main].image", both, again, again, [2]bool{}, false},
		{
			"started again by neither",
			"containerStatuses[main].image",
			both,
			[]string{failed},
			[]string{failed},
			[2]bool{},
			false,
		},
		{"another container", "containerStatuses[other].image", both, again, []string{failed}, [2]bool{}, false},
		{"without a new image", "containerStatuses[main].image", nil, again, []string{failed}, [2]bool{}, false},
		{"upstream's pod ended", "phase", both, again, []string{failed}, [2]bool{false, true}, true},
		{"both pods ended", "containerStatuses[main].image", both, again, []string{failed}, [2]bool{true, true}, false},
	} {
		d := Difference{
			Kind:   "pod",
			Where:  "status." + tc.where,
			Ours:   "app:2",
			Theirs: "app:1",
			Life:   &Life{Pod: p},
			scene: &scene{
				asked:    [2][]string{tc.ours, tc.theirs},
				reported: [2][]string{tc.reported, tc.reported},
				ended:    tc.ended,
			},
		}
		if got := ruleFor(d) != nil; got != tc.ruled {
			t.Errorf("%s: ruled %v, want %v", tc.what, got, tc.ruled)
		}
	}
}

func TestRuleForAStopAfterTheEnd(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	sidecar := corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "side", RestartPolicy: &always}},
		Containers:     []corev1.Container{{Name: "main"}},
	}
	alone := corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}
	const failed = "StopPodSandbox#0 fails"
	for _, tc := range []struct {
		what         string
		spec         corev1.PodSpec
		acts         []Act
		theirs       string
		ours, others []string
		ruled        bool
	}{
		{"a sidecar", sidecar, nil, absent, []string{failed}, []string{failed}, true},
		{
			"an ephemeral container",
			alone,
			[]Act{{Steps: []Step{{Verb: ephemeral}}}},
			absent,
			[]string{failed},
			[]string{failed},
			true,
		},
		{"none of these", alone, nil, absent, []string{failed}, []string{failed}, false},
		{"another text", sidecar, nil, "Warning FailedKillPod: no", []string{failed}, []string{failed}, false},
		{"a stop that failed here alone", sidecar, nil, absent, []string{failed}, []string{"StopPodSandbox#0"}, false},
	} {
		d := Difference{
			Kind:   "event",
			Ours:   "Warning FailedKillPod: error killing pod: disk full",
			Theirs: tc.theirs,
			Life:   &Life{Pod: &corev1.Pod{Spec: tc.spec}, Acts: tc.acts},
			scene:  &scene{asked: [2][]string{tc.ours, tc.others}},
		}
		if got := ruleFor(d) != nil; got != tc.ruled {
			t.Errorf("%s: ruled %v, want %v", tc.what, got, tc.ruled)
		}
	}
}

// TestRuleForTheOrderOfFirstStarts looks at containers of which one could not be started at first on one side.
func TestRuleForTheOrderOfFirstStarts(t *testing.T) {
	p := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "init"}},
		Containers:     []corev1.Container{{Name: "one"}, {Name: "two"}},
	}}
	const (
		oneFirst = "CreateContainer one#0 before StartContainer two#0"
		twoFirst = "StartContainer two#0 before CreateContainer one#0"
		hook     = "ExecSync two#0 [hook 0 500ms] within 0 s before CreateContainer one#0"
		about    = ", about Pod spec.containers{"
		cache    = "Warning Failed: Error: failed to sync configmap cache: timed out waiting for the condition" + about
		pull     = `Warning Failed: Failed to pull image "x:1": rpc error: code = Unavailable desc = no` + about
		missing  = `Warning Failed: Failed to pull image "x:1": not found` + about
	)
	for _, tc := range []struct {
		what, ours, theirs string
		reported           [2]string
		between            string
		ruled              bool
	}{
		{"the cache was late", oneFirst, twoFirst, [2]string{"", cache + "one}"}, nothing, true},
		{"the cache was late for the other", oneFirst, twoFirst, [2]string{"", cache + "two}"}, nothing, false},
		{"ours is out of order", twoFirst, oneFirst, [2]string{"", cache + "one}"}, nothing, false},
		{"no failure", oneFirst, twoFirst, [2]string{}, nothing, false},
		{"the runtime was away", twoFirst, oneFirst, [2]string{pull + "one}", ""}, restartRuntime, true},
		{"the runtime was away, a hook", hook, oneFirst, [2]string{pull + "one}", ""}, restartRuntime, true},
		{"the runtime was away upstream", oneFirst, twoFirst, [2]string{pull + "one}", ""}, restartRuntime, false},
		{"the runtime was there", twoFirst, oneFirst, [2]string{pull + "one}", ""}, restartAgent, false},
		{"the image is missing", twoFirst, oneFirst, [2]string{missing + "one}", ""}, restartRuntime, false},
		{"a restart", strings.ReplaceAll(oneFirst, "#0", "#1"), strings.ReplaceAll(twoFirst, "#0", "#1"),
			[2]string{"", cache + "one}"}, nothing, true}, // by the rule for restarts
		{"an init container", "CreateContainer init#0 before StartContainer two#0",
			"StartContainer two#0 before CreateContainer init#0", [2]string{"", cache + "init}"}, nothing, false},
	} {
		d := Difference{
			Kind:    "order",
			Where:   strings.Replace(tc.ours, "before", "and", 1),
			Ours:    tc.ours,
			Theirs:  tc.theirs,
			Life:    &Life{Pod: p},
			Between: []string{tc.between},
			scene:   &scene{reported: [2][]string{{tc.reported[0]}, {tc.reported[1]}}},
		}
		if got := ruleFor(d) != nil; got != tc.ruled {
			t.Errorf("%s: ruled %v, want %v", tc.what, got, tc.ruled)
		}
	}
}

// TestRuleForEventsOfRejectedPods looks at events that upstream alone records for pods that both agents reject.
func TestRuleForEventsOfRejectedPods(t *testing.T) {
	const (
		deadline = "Normal DeadlineExceeded: Pod was active on the node longer than the specified deadline, about Pod "
		mount    = `Warning FailedMount: MountVolume.SetUp failed for volume "v": not a file, about Pod `
	)
	limit, run := int64(8), []string{"RunPodSandbox#0"}
	for _, tc := range []struct {
		what, theirs string
		static       bool
		limit        *int64
		refused      [2]bool
		asked        []string
		ruled        bool
	}{
		{"a deadline of a static pod", deadline, true, &limit, [2]bool{true, false}, nil, true},
		{"a deadline of a pod", deadline, false, &limit, [2]bool{true, false}, nil, false},
		{"a deadline of a pod that both reject", deadline, false, &limit, [2]bool{true, true}, nil, true},
		{"no deadline", deadline, true, nil, [2]bool{true, false}, nil, false},
		{"a deadline of a static pod that was accepted", deadline, true, &limit, [2]bool{}, nil, false},
		{"a deadline of a static pod that ran upstream", deadline, true, &limit, [2]bool{true, false}, run, false},
		{"a volume", mount, false, nil, [2]bool{true, true}, nil, true},
		{"a volume of a pod rejected here", mount, false, nil, [2]bool{true, false}, nil, false},
		{"a volume of a pod that ran upstream", mount, false, nil, [2]bool{true, true}, run, false},
	} {
		p := &corev1.Pod{Spec: corev1.PodSpec{ActiveDeadlineSeconds: tc.limit}}
		d := Difference{
			Kind:   "event",
			Ours:   absent,
			Theirs: tc.theirs,
			Life:   &Life{Pod: p, Static: tc.static},
			scene:  &scene{refused: tc.refused, asked: [2][]string{nil, tc.asked}},
		}
		if got := ruleFor(d) != nil; got != tc.ruled {
			t.Errorf("%s: ruled %v, want %v", tc.what, got, tc.ruled)
		}
	}
}

// TestRuleForTheReasonOfAStaticPod looks at the reason of a pod that has ended, after the agents were restarted.
func TestRuleForTheReasonOfAStaticPod(t *testing.T) {
	for _, tc := range []struct {
		what, where, ours, theirs, between string
		static, ended, ruled               bool
	}{
		{"the reason", "status.reason", "DeadlineExceeded", absent, restartAgent, true, true, true},
		{"the message", "status.message", "too long", absent, killAgent, true, true, true},
		{"another reason", "status.reason", "DeadlineExceeded", "Evicted", restartAgent, true, true, false},
		{"lost here", "status.reason", absent, "DeadlineExceeded", restartAgent, true, true, false},
		{"not restarted", "status.reason", "DeadlineExceeded", absent, freezeAgent, true, true, false},
		{"of the API server", "status.reason", "DeadlineExceeded", absent, restartAgent, false, true, false},
		{"of a pod that runs", "status.reason", "DeadlineExceeded", absent, restartAgent, true, false, false},
	} {
		d := Difference{
			Kind:    "pod",
			Where:   tc.where,
			Ours:    tc.ours,
			Theirs:  tc.theirs,
			Between: []string{tc.between},
			Life:    &Life{Pod: &corev1.Pod{}, Static: tc.static},
			scene:   &scene{ended: [2]bool{tc.ended, tc.ended}, asked: [2][]string{{"RunPodSandbox#0"}}},
		}
		if got := ruleFor(d) != nil; got != tc.ruled {
			t.Errorf("%s: ruled %v, want %v", tc.what, got, tc.ruled)
		}
	}
}

// TestRuleForALogThatWasRemoved looks at the last state of a container that is removed while its message is read.
func TestRuleForALogThatWasRemoved(t *testing.T) {
	const (
		before = "terminated.exitCode=3 terminated.finishedAt=TIME"
		after  = " terminated.reason=Error terminated.startedAt=TIME"
		failed = " terminated.message=Error on reading termination message from logs: failed to try resolving " +
			`symlinks in path "RIG/pod-logs/x/main/0.log": lstat RIG/pod-logs/x/main/0.log: `
		gone  = failed + "no such file or directory"
		where = "status.containerStatuses[main].lastState"
	)
	for _, tc := range []struct {
		what, where, ours, theirs string
		ruled                     bool
	}{
		{"removed", where, before + after, before + gone + after, true},
		{"removed here", where, before + gone + after, before + after, false},
		{"with a message", where, before + " terminated.message=last words" + after, before + gone + after, false},
		{"another code", where, "terminated.exitCode=4" + after, before + gone + after, false},
		{"another error", where, before + after, before + failed + "permission denied" + after, false},
		{"the state", "status.containerStatuses[main].state", before + after, before + gone + after, false},
	} {
		d := Difference{
			Kind:   "pod",
			Where:  tc.where,
			Ours:   tc.ours,
			Theirs: tc.theirs,
			Life:   &Life{Pod: &corev1.Pod{}},
			scene:  &scene{},
		}
		if got := ruleFor(d) != nil; got != tc.ruled {
			t.Errorf("%s: ruled %v, want %v", tc.what, got, tc.ruled)
		}
	}
}

// TestRuleForWhatAStatusShowed looks at parts of statuses that one side alone has shown.
func TestRuleForWhatAStatusShowed(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	p := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "init"}, {Name: "side", RestartPolicy: &always}, {Name: "long"}},
		Containers:     []corev1.Container{{Name: "main"}},
		ReadinessGates: []corev1.PodReadinessGate{{ConditionType: "example.com/gate"}},
	}}
	programs := map[string][]string{
		"init": {"sleep 0.3; exit 0"}, "side": {"trap '' TERM; " + forever}, "long": {"sleep 20; exit 0"},
		"main": {"sleep 6; oom", forever},
	}
	gate := []Act{{Steps: []Step{{Verb: status}}}}
	const (
		ready = "condition Ready: True  "
		lost  = `: terminated 137 signal 0 ContainerStatusUnknown "The container could not be located", 0 restarts`
	)
	var (
		start   = func(name string) string { return "StartContainer " + name + "#0" }
		ran     = []string{start("init"), start("long"), start("main"), start("side")}
		both    = [2][]string{ran, ran}
		theirs  = [2][]string{nil, ran}
		twice   = [2][]string{{"StartContainer main#1"}, {"StartContainer main#1"}}
		created = [2][]string{{"CreateContainer main#0"}, nil}
		neither = [2][]string{{"RunPodSandbox#0"}, nil}
	)
	running := func(name, restarts string) string {
		return "container " + name + ": running, " + restarts + " restarts"
	}
	for _, tc := range []struct {
		what, ours, theirs string
		static             bool
		acts               []Act
		asked              [2][]string
		ended, ruled       bool
	}{
		{"a short init container", absent, running("init", "0"), false, nil, both, false, true},
		{"a short container", absent, running("main", "0"), false, nil, both, false, true},
		{"that here alone", running("init", "0"), absent, false, nil, both, false, false},
		{"that did not run here", absent, running("main", "0"), false, nil, theirs, false, false},
		{"that was restarted upstream", absent, running("init", "1"), false, nil, both, false, false},
		{"that goes on after a restart", absent, running("main", "1"), false, nil, twice, false, false},
		{"a long init container", absent, running("long", "0"), false, nil, both, false, false},
		{"a sidecar that goes on", absent, running("side", "0"), false, nil, both, false, false},

		{"an open gate", ready, absent, true, gate, neither, false, true},
		{"a gate that nothing opens", ready, absent, true, nil, neither, false, false},
		{"an open gate of the API server's", ready, absent, false, gate, neither, false, false},
		{"an open gate upstream", absent, ready, true, gate, neither, false, false},

		{"never created", "container main" + lost, absent, false, nil, neither, true, true},
		{"never created, of a pod that runs", "container main" + lost, absent, false, nil, neither, false, false},
		{"created here", "container main" + lost, absent, false, nil, created, true, false},
		{"an init container never created", "container init" + lost, absent, false, nil, neither, true, false},
	} {
		d := Difference{
			Kind:   "seen",
			Ours:   tc.ours,
			Theirs: tc.theirs,
			Life:   &Life{Pod: p, Static: tc.static, Programs: programs, Acts: tc.acts},
			scene:  &scene{asked: tc.asked, ended: [2]bool{tc.ended, tc.ended}},
		}
		if got := ruleFor(d) != nil; got != tc.ruled {
			t.Errorf("%s: ruled %v, want %v", tc.what, got, tc.ruled)
		}
	}
}

// TestRuleForAResizeAfterTheEnd looks at the resize of a pod that has ended, on a node under pressure.
func TestRuleForAResizeAfterTheEnd(t *testing.T) {
	const deferred = `Warning ResizeDeferred: Pod resize Evicted: {"error":"The node had condition: [DiskPressure]. "}`
	for _, tc := range []struct {
		what, ours, theirs string
		ended, ruled       bool
	}{
		{"deferred upstream", absent, deferred, true, true},
		{"of a pod that runs", absent, deferred, false, false},
		{"deferred here", deferred, absent, true, false},
		{"deferred for want of CPU", absent, "Warning ResizeDeferred: Pod resize Deferred: no CPU", true, false},
	} {
		d := Difference{
			Kind:   "event",
			Ours:   tc.ours,
			Theirs: tc.theirs,
			Life:   &Life{Pod: &corev1.Pod{}},
			scene:  &scene{ended: [2]bool{tc.ended, tc.ended}},
		}
		if got := ruleFor(d) != nil; got != tc.ruled {
			t.Errorf("%s: ruled %v, want %v", tc.what, got, tc.ruled)
		}
	}
}
