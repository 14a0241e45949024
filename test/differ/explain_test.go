package differ

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"keelson/test/kit/fakecri"
)

// variant is a change of a difference.
type variant struct {
	what   string
	change func(*Difference)
}

// variants checks that a rule explains a difference, and that no rule explains it after the change of a variant.
func variants(t *testing.T, make func() Difference, others ...variant) {
	t.Helper()
	if d := make(); ruleFor(d) == nil {
		t.Errorf("no rule for %s %s: %s, %s", d.Kind, d.Where, d.Ours, d.Theirs)
	}
	for _, v := range others {
		d := make()
		v.change(&d)
		if r := ruleFor(d); r != nil {
			t.Errorf("%s: ruled by %q", v.what, r.Why)
		}
	}
}

func steps(list ...Step) []Act { return []Act{{Steps: list}} }

// podOf has an init container, a sidecar and two regular containers.
func podOf() *corev1.Pod {
	always := corev1.ContainerRestartPolicyAlways
	return &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "init"}, {Name: "side", RestartPolicy: &always}},
		Containers:     []corev1.Container{{Name: "main"}, {Name: "other"}},
	}}
}

func TestRuleForAMirrorPodThatComesLate(t *testing.T) {
	variants(t, func() Difference {
		return Difference{
			Kind: "pod", Where: "pod", Ours: "there", Theirs: "gone", Between: []string{cutOffLong},
			Life: &Life{Pod: podOf(), Static: true},
			scene: &scene{
				asked:    [2][]string{{"RunPodSandbox#0"}, nil},
				reported: [2][]string{nil, {"Warning FailedMount: no"}},
			},
		}
	},
		variant{"of a pod of the API server", func(d *Difference) { d.Life.Static = false }},
		variant{"gone here", func(d *Difference) { d.Ours, d.Theirs = "gone", "there" }},
		variant{"while not cut off", func(d *Difference) { d.Between = []string{restartAgent} }},
		variant{"whose volumes are mounted", func(d *Difference) { d.scene.asked[0] = []string{"CreateContainer main#0"} }},
		variant{"without volumes", func(d *Difference) { d.scene.reported[1] = nil }})
}

func TestRuleForAHookThatARetryRunsAgain(t *testing.T) {
	const failed = "StopContainer main#0 within 2 s fails"
	variants(t, func() Difference {
		return Difference{
			Kind: "event", Theirs: absent,
			Ours:  "Warning FailedPreStopHook: PreStopHook failed, about Pod spec.containers{main}, from kubelet",
			Life:  &Life{Pod: podOf()},
			scene: &scene{asked: [2][]string{{failed}, {failed}}},
		}
	},
		variant{"in theirs", func(d *Difference) { d.Ours, d.Theirs = absent, d.Ours }},
		variant{"of another container", func(d *Difference) {
			d.Ours = "Warning FailedPreStopHook: PreStopHook failed, about Pod spec.containers{other}, from kubelet"
		}},
		variant{"whose stop failed upstream alone", func(d *Difference) { d.scene.asked[0] = nil }})
}

func TestRuleForATokenBesideAnEphemeralContainer(t *testing.T) {
	make := func(owner string) func() Difference {
		return func() Difference {
			p, uid := podOf(), int64(0)
			if owner == "0" {
				p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: &uid}
			}
			return Difference{
				Kind: "file", Where: "volumes/kubernetes.io~projected/kube-api-access-RANDOM/..VERSION/token",
				Ours: "-rw------- owner " + owner + ":0 content TOKEN", Theirs: "-rw-r--r-- owner 0:0 content TOKEN",
				Life: &Life{Pod: p, Acts: steps(Step{Verb: ephemeral})}, Between: []string{restartAgent}, scene: &scene{},
			}
		}
	}
	variants(t, make("0"), variant{"of root by default", func(d *Difference) {
		d.Life.Pod.Spec.Containers[0].SecurityContext = nil
	}})
	variants(t, make("1001"),
		variant{"open here", func(d *Difference) { d.Ours, d.Theirs = d.Theirs, d.Ours }},
		variant{"without an ephemeral container", func(d *Difference) { d.Life.Acts = nil }},
		variant{"written once", func(d *Difference) { d.Between = nil }},
		variant{"of root", func(d *Difference) { d.Ours = "-rw------- owner 0:0 content TOKEN" }},
		variant{"another file", func(d *Difference) { d.Where = "volumes/kubernetes.io~secret/vol0/..VERSION/token" }})
}

func TestRuleForAContainerThatIsRefusedForItsUser(t *testing.T) {
	refused := []string{"Warning Failed: Error: container has runAsNonRoot and image will run as root (pod: \"x\", " +
		"container: extra), about Pod spec.ephemeralContainers{extra}"}
	variants(t, func() Difference {
		return Difference{
			Kind: "file", Where: "containers/extra", Ours: absent, Theirs: "drwxr-x--- owner 0:0",
			Life: &Life{Pod: podOf()}, scene: &scene{reported: [2][]string{refused, refused}},
		}
	},
		variant{"of another container", func(d *Difference) { d.Where = "containers/main" }},
		variant{"here alone", func(d *Difference) { d.Ours, d.Theirs = d.Theirs, d.Ours }},
		variant{"that was created", func(d *Difference) { d.scene.asked[0] = []string{"CreateContainer extra#0"} }},
		variant{"that ours did not refuse", func(d *Difference) { d.scene.reported[0] = nil }})
}

func TestRuleForARestartBeforeThatOfAll(t *testing.T) {
	variants(t, func() Difference {
		p := podOf()
		p.Spec.Containers[1].RestartPolicyRules = []corev1.ContainerRestartRule{
			{Action: corev1.ContainerRestartRuleActionRestartAllContainers},
		}
		return Difference{
			Kind: "order", Where: "StopContainer side#0 within 2 s and CreateContainer main#1",
			Ours: "one", Theirs: "other", Life: &Life{Pod: p}, scene: &scene{},
		}
	},
		variant{"its first start", func(d *Difference) {
			d.Where = "StopContainer side#0 within 2 s and CreateContainer main#0"
		}},
		variant{"of a sidecar", func(d *Difference) {
			d.Where = "StopContainer init#0 within 2 s and CreateContainer side#1"
		}},
		variant{"without such a rule", func(d *Difference) { d.Life.Pod.Spec.Containers[1].RestartPolicyRules = nil }})
}

func TestRuleForAContainerThatDiedAfterTheOthers(t *testing.T) {
	make := func(kind, ours string) func() Difference {
		return func() Difference {
			return Difference{
				Kind: kind, Ours: ours, Theirs: absent,
				Life: &Life{Pod: podOf(), Acts: steps(Step{Verb: ephemeral}, Step{Verb: killBox})},
				scene: &scene{
					ended: [2]bool{true, true},
					asked: [2][]string{{"StopContainer extra#0 within 3 s", "StopContainer main#0 within 3 s"}, nil},
				},
			}
		}
	}
	others := []variant{
		{"of a pod that goes on", func(d *Difference) { d.scene.ended[0] = false }},
		{"in a sandbox that lives", func(d *Difference) { d.Life.Acts = nil }},
		{"by theirs", func(d *Difference) { d.Ours, d.Theirs = absent, d.Ours }},
		{"by both", func(d *Difference) { d.scene.asked[1] = []string{"StopContainer extra#0 within 9 s"} }},
	}
	variants(t, make("call", "StopContainer extra#0 within 3 s"), append(others, variant{"a regular container",
		func(d *Difference) { d.Ours = "StopContainer main#0 within 3 s" }})...)
	variants(t, make("event", "Normal Killing: Stopping container extra, about Pod spec.ephemeralContainers{extra}"),
		others...)
}

func TestRuleForAContainerThatChangedWhileItWasStopped(t *testing.T) {
	variants(t, func() Difference {
		ours := []string{"StartContainer main#0", "StartContainer main#1"}
		return Difference{
			Kind: "pod", Where: "status.containerStatuses[main].restartCount", Ours: "1", Theirs: "2",
			Life:  &Life{Pod: podOf()},
			scene: &scene{changed: []string{"main"}, asked: [2][]string{ours, append(ours, "StartContainer main#2")}},
		}
	},
		variant{"of another container", func(d *Difference) { d.Where = "status.containerStatuses[other].restartCount" }},
		variant{"that did not change", func(d *Difference) { d.scene.changed = nil }},
		variant{"started as often", func(d *Difference) { d.scene.asked[1] = d.scene.asked[0] }},
		variant{"started again here", func(d *Difference) {
			d.scene.asked[0], d.scene.asked[1] = d.scene.asked[1], d.scene.asked[0]
		}})
}

// TestRuleForAnInitContainerThatIsCreatedLate looks at one that upstream counts anew in the second sandbox, since its
// first creation there failed without a call to the runtime.
func TestRuleForAnInitContainerThatIsCreatedLate(t *testing.T) {
	const late = "Warning Failed: Error: failed to sync secret cache: timed out waiting for the condition, about Pod " +
		"spec.initContainers{init}"
	make := func(reported []string, spoke map[string]int) func() Difference {
		return func() Difference {
			p := podOf()
			p.Spec.InitContainers = p.Spec.InitContainers[:1]
			p.Spec.InitContainers[0].Env = []corev1.EnvVar{
				{Name: "ONE", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "user"}}},
			}
			theirs := []string{"RunPodSandbox#0", "RunPodSandbox#1", "StartContainer init#0"}
			return Difference{
				Kind: "pod", Where: "status.initContainerStatuses[init].restartCount", Ours: "1", Theirs: "0",
				Life: &Life{Pod: p},
				scene: &scene{
					asked:    [2][]string{append(slices.Clone(theirs), "StartContainer init#1"), theirs},
					reported: [2][]string{nil, reported},
					spoke:    [2]map[string]int{nil, spoke},
				},
			}
		}
	}
	others := []variant{
		{"that reads no objects", func(d *Difference) { d.Life.Pod.Spec.InitContainers[0].Env = nil }},
		{"in the first sandbox", func(d *Difference) {
			for side, asked := range d.scene.asked {
				d.scene.asked[side] = slices.DeleteFunc(asked, func(c string) bool { return c == "RunPodSandbox#1" })
			}
		}},
		{"started as often", func(d *Difference) { d.scene.asked[1] = d.scene.asked[0] }},
		{"counted anew here", func(d *Difference) {
			d.scene.asked[0], d.scene.asked[1] = d.scene.asked[1], d.scene.asked[0]
		}},
		{"of another container", func(d *Difference) { d.Where = "status.containerStatuses[main].restartCount" }},
	}
	variants(t, make([]string{late}, nil), append(others,
		variant{"read in time", func(d *Difference) { d.scene.reported[1] = nil }},
		variant{"read late here", func(d *Difference) {
			d.scene.reported[0], d.scene.reported[1] = d.scene.reported[1], nil
		}},
		variant{"another one read late", func(d *Difference) {
			d.scene.reported[1] = []string{strings.Replace(late, "{init}", "{main}", 1)}
		}})...)
	variants(t, make(nil, map[string]int{"Warning Failed": 12, "Warning FailedMount": 12, "": 30}), append(others,
		variant{"with fewer warnings", func(d *Difference) { d.scene.spoke[1]["Warning Failed"] = 11 }})...)
}

func TestWhatChangedWhileItWasStopped(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	stop := request{Call: fakecri.Call{Method: "StopContainer", Container: "main", Start: at(2), End: at(5)}}
	image := patch + ` {"spec":{"containers":[{"image":"app:2","name":"main"}]}}`
	for _, tc := range []struct {
		what string
		step taken
		want int
	}{
		{"meanwhile", taken{at(3), image}, 1},
		{"before", taken{at(1), image}, 0},
		{"afterwards", taken{at(6), image}, 0},
		{"of another container", taken{at(3), patch + ` {"spec":{"containers":[{"image":"app:2","name":"other"}]}}`}, 0},
		{"labels", taken{at(3), patch + ` {"metadata":{"labels":{"name":"main"}}}`}, 0},
	} {
		track := &track{steps: []taken{tc.step}, calls: []request{stop}}
		if got := track.changedWhileStopped(); len(got) != tc.want {
			t.Errorf("%s: %v", tc.what, got)
		}
	}
}

func TestRuleForASidecarThatEndsBeforeItHasStarted(t *testing.T) {
	variants(t, func() Difference {
		p := podOf()
		p.Spec.InitContainers[1].StartupProbe = &corev1.Probe{}
		const sooner, later = "ExecSync side#1 [hook] within 0 s", "CreateContainer main#0"
		return Difference{
			Kind: "order", Where: later + " and " + sooner, Ours: later + " before " + sooner,
			Theirs: sooner + " before " + later, scene: &scene{},
			Life: &Life{Pod: p, Programs: map[string][]string{"side": {"sleep 6; exit 5", forever}}},
		}
	},
		variant{"here", func(d *Difference) { d.Ours, d.Theirs = d.Theirs, d.Ours }},
		variant{"for the first time", func(d *Difference) {
			d.Theirs = "StartContainer side#0 before CreateContainer main#0"
		}},
		variant{"that did not end by itself", func(d *Difference) { d.Life.Programs["side"] = []string{forever} }},
		variant{"while it is stopped", func(d *Difference) {
			d.Theirs = "StopContainer side#1 within 2 s before CreateContainer main#0"
		}},
		variant{"before one that comes sooner", func(d *Difference) {
			d.Theirs = "StartContainer side#1 before CreateContainer init#0"
		}},
		variant{"without a startup probe", func(d *Difference) { d.Life.Pod.Spec.InitContainers[1].StartupProbe = nil }},
		variant{"that is no sidecar", func(d *Difference) { d.Life.Pod.Spec.InitContainers[1].RestartPolicy = nil }})
}

func TestRuleForAStaticPodThatEndsWhileCutOff(t *testing.T) {
	make := func(kind, where, ours, theirs string) func() Difference {
		return func() Difference {
			return Difference{
				Kind: kind, Where: where, Ours: ours, Theirs: theirs, Between: []string{cutOff, loseEvents},
				Life: &Life{Pod: podOf(), Static: true, Acts: []Act{{Down: []Step{{Verb: create}}}}},
				scene: &scene{
					shown: [2]bool{true, false},
					ended: [2]bool{true, false},
					asked: [2][]string{{"StopPodSandbox#0"}, {"StopPodSandbox#0"}},
				},
			}
		}
	}
	others := []variant{
		{"of the API server", func(d *Difference) { d.Life.Static = false }},
		{"created before", func(d *Difference) { d.Life.Acts = steps(Step{Verb: create}) }},
		{"created while the agent was down", func(d *Difference) { d.Between[0] = restartAgent }},
		{"shown upstream", func(d *Difference) { d.scene.shown[1] = true }},
		{"that runs on here", func(d *Difference) { d.scene.ended[0] = false }},
		{"that runs on upstream", func(d *Difference) { d.scene.asked[1] = nil }},
		{"in theirs", func(d *Difference) { d.Ours, d.Theirs = d.Theirs, d.Ours }},
	}
	variants(t, make("pod", "pod", "there", "gone"), others...)
	variants(t, make("seen", "phase", "phase: Succeeded  ", absent), others...)
}

func TestRuleForAStopWhileTheRuntimeIsDown(t *testing.T) {
	const failed = `Warning FailedKillPod: error killing pod: [failed to "KillContainer" for "main" with ` +
		`KillContainerError: "rpc error: code = Unavailable desc = no", failed to "KillContainer" for "extra" with ` +
		`KillContainerError: "rpc error: code = Unavailable desc = no"], about Pod , from kubelet`
	make := func(kind, where, ours, theirs string) func() Difference {
		return func() Difference {
			p := podOf()
			p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{}}
			return Difference{
				Kind: kind, Where: where, Ours: ours, Theirs: theirs, Between: []string{restartRuntime},
				Life: &Life{Pod: p},
				scene: &scene{
					asked: [2][]string{
						{"StopContainer extra#0 within 2 s", "StopContainer main#1 within 2 s", "StopPodSandbox#0"},
						{"StopContainer side#0 within 2 s", "StopPodSandbox#0"},
					},
					reported: [2][]string{nil, {failed}},
				},
			}
		}
	}
	others := []variant{
		{"while it ran", func(d *Difference) { d.Between[0] = restartAgent }},
		{"stopped upstream", func(d *Difference) { d.scene.asked[1] = append(d.scene.asked[0], d.scene.asked[1]...) }},
		{"not stopped here", func(d *Difference) { d.scene.asked[0] = []string{"StopPodSandbox#0"} }},
		{"in a sandbox that lives", func(d *Difference) { d.scene.asked[1] = nil }},
		{"without a failure", func(d *Difference) { d.scene.reported[1] = nil }},
		{"that failed for another reason", func(d *Difference) {
			d.scene.reported[1][0] = strings.ReplaceAll(failed, "Unavailable", "Unknown")
		}},
		{"that failed here", func(d *Difference) {
			d.scene.reported[0], d.scene.reported[1] = d.scene.reported[1], nil
		}},
		{"of others alone", func(d *Difference) {
			d.scene.reported[1][0] = strings.NewReplacer(`"main"`, `"side"`, `"extra"`, `"other"`).Replace(failed)
		}},
	}
	variants(t, make("call", "", "StopContainer main#1 within 2 s", absent), append(others,
		variant{"of a sidecar", func(d *Difference) { d.Ours = "StopContainer side#0 within 2 s" }},
		variant{"by theirs", func(d *Difference) { d.Ours, d.Theirs = absent, d.Ours }},
		variant{"a start", func(d *Difference) { d.Ours = "StartContainer main#1" }})...)
	variants(t, make("call", "", "ExecSync main#1 [hook 0 0s] within 0 s", absent), append(others,
		variant{"of another hook", func(d *Difference) { d.Life.Pod.Spec.Containers[0].Lifecycle.PreStop = nil }})...)
	variants(t, make("seen", "container main", `container main: terminated 143 signal 0 Error "", 1 restarts`, absent),
		append(others, variant{"that runs", func(d *Difference) { d.Ours = "container main: running, 1 restarts" }})...)
	variants(t, make("pod", "status.containerStatuses[main].state", "terminated.exitCode=143", "terminated.exitCode=137"),
		append(others, variant{"its restarts", func(d *Difference) {
			d.Where = "status.containerStatuses[main].restartCount"
		}})...)
}

func TestRuleForARestartThatFailed(t *testing.T) {
	const killed = "Normal Killing: Container main failed liveness probe, will be restarted, about Pod spec.containers{main}"
	make := func(kind, where, ours, theirs string) func() Difference {
		return func() Difference {
			p := podOf()
			p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
			return Difference{
				Kind: kind, Where: where, Ours: ours, Theirs: theirs,
				Life: &Life{Pod: p},
				scene: &scene{
					reported: [2][]string{{killed}, {killed}},
					asked: [2][]string{
						{"CreateContainer main#1 fails", "CreateContainer main#1", "StartContainer main#1"},
						{"CreateContainer main#1 fails"},
					},
				},
			}
		}
	}
	others := []variant{
		{"always", func(d *Difference) { d.Life.Pod.Spec.RestartPolicy = corev1.RestartPolicyAlways }},
		{"killed for another reason", func(d *Difference) {
			d.scene.reported[1] = []string{"Normal Killing: Stopping container main, about Pod spec.containers{main}"}
		}},
		{"killed upstream alone", func(d *Difference) { d.scene.reported[0] = nil }},
		{"without a failure", func(d *Difference) { d.scene.asked[1] = []string{"CreateContainer main#0"} }},
		{"started on both sides", func(d *Difference) { d.scene.asked[1] = d.scene.asked[0] }},
		{"started on neither side", func(d *Difference) { d.scene.asked[0] = d.scene.asked[1] }},
		{"of another container", func(d *Difference) {
			for side := range d.scene.reported {
				d.scene.reported[side] = []string{strings.ReplaceAll(killed, "main", "side")}
			}
		}},
	}
	variants(t, make("pod", "status.phase", "Running", "Succeeded"), others...)
	variants(t, make("seen", "phase", absent, "phase: Succeeded  "), others...)
	variants(t, make("call", "", "StartContainer main#1", absent), append(others,
		variant{"a request", func(d *Difference) { d.Kind = "request" }},
		variant{"a file", func(d *Difference) { d.Kind = "file" }})...)
}

func TestRuleForADeadlineAfterTheRuntimeWasDown(t *testing.T) {
	const (
		deadline = "Normal DeadlineExceeded: Pod was active on the node longer than the specified deadline, about Pod "
		away     = "Warning FailedCreatePodSandBox: Failed to create pod sandbox: rpc error: code = Unavailable desc = no"
	)
	make := func(kind, where, ours, theirs string) func() Difference {
		return func() Difference {
			p, limit := podOf(), int64(8)
			p.Spec.ActiveDeadlineSeconds = &limit
			return Difference{
				Kind: kind, Where: where, Ours: ours, Theirs: theirs, Between: []string{restartRuntime, nothing},
				Life: &Life{Pod: p, Acts: []Act{{Down: []Step{{Verb: create}}}}},
				scene: &scene{
					ended:    [2]bool{true, true},
					reported: [2][]string{{deadline}, {deadline, away}},
					asked:    [2][]string{{"StartContainer init#0", "StartContainer main#0"}, {"StartContainer init#0"}},
				},
			}
		}
	}
	others := []variant{
		{"created before", func(d *Difference) { d.Life.Acts = steps(Step{Verb: create}) }},
		{"while the agent was down", func(d *Difference) { d.Between[0] = restartAgent }},
		{"without a deadline", func(d *Difference) { d.Life.Pod.Spec.ActiveDeadlineSeconds = nil }},
		{"that goes on upstream", func(d *Difference) { d.scene.ended[1] = false }},
		{"that ended for another reason", func(d *Difference) { d.scene.reported[0] = nil }},
		{"without a failure", func(d *Difference) { d.scene.reported[1] = []string{deadline} }},
		{"with the same containers", func(d *Difference) { d.scene.asked[1] = d.scene.asked[0] }},
	}
	variants(t, make("pod", "status.containerStatuses[main].state", "terminated", "waiting"), append(others,
		variant{"the phase", func(d *Difference) { d.Where = "status.phase" }})...)
	variants(t, make("pod", "status.conditions[Initialized]", "status=True", "status=False"), others...)
	variants(t, make("seen", "condition Ready", "condition Ready: True  ", absent), others...)
	variants(t, make("event", "Normal Killing", absent, "Normal Killing: Stopping container main"), others...)
	variants(t, make("call", "", "StopContainer main#0 within 3 s", absent), append(others,
		variant{"the order", func(d *Difference) { d.Kind = "order" }},
		variant{"a request", func(d *Difference) { d.Kind = "request" }})...)
}

func TestRuleForAPodThatIsStoppedSlowly(t *testing.T) {
	variants(t, func() Difference {
		return Difference{
			Kind: "seen", Where: "phase", Ours: "phase: Running  ", Theirs: absent,
			Life: &Life{
				Pod: podOf(), Faults: []Fault{{Method: "StopPodSandbox", Times: 1, DelayMS: 19000}},
				Programs: map[string][]string{"main": {"sleep 6; exit 3", forever}, "side": {forever}},
			},
			scene: &scene{
				ended: [2]bool{true, true},
				asked: [2][]string{{"StartContainer main#0", "StartContainer side#0"}, {"StartContainer main#0"}},
			},
		}
	},
		variant{"upstream alone", func(d *Difference) { d.Ours, d.Theirs = d.Theirs, d.Ours }},
		variant{"another phase", func(d *Difference) { d.Ours = "phase: Failed  " }},
		variant{"that runs on", func(d *Difference) { d.scene.ended[1] = false }},
		variant{"stopped at once", func(d *Difference) { d.Life.Faults[0].DelayMS = 0 }},
		variant{"whose container was stopped slowly", func(d *Difference) {
			d.Life.Faults[0].Method = "StopContainer"
		}},
		variant{"that ran for long", func(d *Difference) { d.Life.Programs["main"][0] = "sleep 20; exit 3" }},
		variant{"that did not end by itself", func(d *Difference) { d.Life.Programs["main"][0] = forever }},
		variant{"that was restarted", func(d *Difference) { d.scene.asked[0][0] = "StartContainer main#1" }})
}

func TestRuleForAResizeWhoseEventWasLost(t *testing.T) {
	const (
		shown = "message=The node had condition: [DiskPressure].  reason=Deferred status=True type=PodResizePending"
		event = `Warning ResizeDeferred: Pod resize Deferred: {"error":"The node had condition: [DiskPressure]. "}`
		where = "status.conditions[PodResizePending]"
	)
	make := func(reported []string, looks flat) func() Difference {
		return func() Difference {
			return Difference{
				Kind: "pod", Where: where, Ours: absent, Theirs: shown, Between: []string{pressNode},
				Life: &Life{Pod: podOf()},
				scene: &scene{
					reported: [2][]string{{event}, reported},
					looks:    [2]flat{{}, looks},
				},
			}
		}
	}
	others := []variant{
		{"while the node was not pressed", func(d *Difference) { d.Between = nil }},
		{"another condition", func(d *Difference) { d.Where = "status.conditions[PodResizeInProgress]" }},
		{"not deferred here", func(d *Difference) { d.scene.reported[0] = nil }},
	}
	variants(t, make([]string{event}, flat{}), append(others,
		variant{"not deferred upstream", func(d *Difference) { d.scene.reported[1] = nil }})...)
	variants(t, make(nil, flat{where: shown}), append(others, variant{"for want of CPU", func(d *Difference) {
		d.scene.looks[1] = flat{where: "message=no CPU reason=Deferred status=True type=PodResizePending"}
	}})...)
}
