package differ

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

var (
	stopOf         = regexp.MustCompile(`StopContainer (\S+)#\d+`)
	startAgainOf   = regexp.MustCompile(`(?:CreateContainer|StartContainer) (\S+)#[1-9]\d*`)
	startOf        = regexp.MustCompile(`^StartContainer (\S+)#(\d+)$`)
	stoppingOf     = regexp.MustCompile(`^(?:StopContainer (\S+)#|Normal Killing: Stopping container (\S+), about)`)
	failedPreStop  = regexp.MustCompile(`^Warning FailedPreStopHook: .* about Pod spec\.\w+\{(\S+)\}`)
	tokenFile      = regexp.MustCompile(`^volumes/kubernetes\.io~projected/[^/]+/\.\.VERSION/token$`)
	ofAUser        = regexp.MustCompile(`^-rw------- owner (\d+):0 content TOKEN$`)
	directoryOf    = regexp.MustCompile(`^containers/([^/]+)$`)
	ofContainer    = regexp.MustCompile(`^(?:StopContainer|ExecSync) (\S+)#\d+ `)
	shownEnded     = regexp.MustCompile(`^container (\S+): terminated `)
	stateOfOne     = regexp.MustCompile(`^status\.(?:initC|c)ontainerStatuses\[([^\]]+)\]\.state$`)
	killedForProbe = regexp.MustCompile(
		`^Normal Killing: Container (\S+) failed (?:liveness|startup) probe, will be restarted`)
	notStopped = regexp.MustCompile(
		`failed to "KillContainer" for "(\S+)" with KillContainerError: "rpc error: code = Unavailable `)
	beginsBefore = regexp.MustCompile(`^(?:CreateContainer|StartContainer|ExecSync) (\S+)#(\d+).* before ` +
		`(?:CreateContainer|StartContainer|ExecSync) (\S+)#\d+`)
)

// ofARestartBeforeAll reports whether, in a pod with a rule that restarts all containers, the stop of a container and
// the restart of another one had a different order.
func ofARestartBeforeAll(d Difference) bool {
	stopped, started := stopOf.FindStringSubmatch(d.Where), startAgainOf.FindStringSubmatch(d.Where)
	if d.Kind != "order" || stopped == nil || started == nil || stopped[1] == started[1] {
		return false
	}
	return d.Life.regular(started[1]) && slices.ContainsFunc(containers(d.Life.Pod), func(c corev1.Container) bool {
		return slices.ContainsFunc(c.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool {
			return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
		})
	})
}

// changedWhileStopped reports whether upstream's agent started a container once more than ours after its image had
// changed while it was stopped, and the difference is in that container.
func changedWhileStopped(d Difference) bool {
	return slices.ContainsFunc(d.scene.changed, func(name string) bool {
		if !strings.Contains(d.At+d.Where+d.Ours+d.Theirs, name) {
			return false
		}
		return d.scene.startedMore(1, name) && !d.scene.startedMore(0, name)
	})
}

// startedMore reports whether a side has started an attempt of a container that the other has not.
func (sc *scene) startedMore(side int, name string) bool {
	return slices.ContainsFunc(sc.asked[side], func(call string) bool {
		m := startOf.FindStringSubmatch(call)
		return m != nil && m[1] == name && !slices.Contains(sc.asked[1-side], call)
	})
}

// createdLate reports whether upstream's agent had not read the objects of a container's variables in time, so that it
// created the container, one time fewer than ours, in a later sync: it had removed the earlier attempts by then. The
// event is dropped if the pod has had as many warnings as it may have at once.
func createdLate(sc *scene, c corev1.Container) bool {
	reads := slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
		from := e.ValueFrom
		return from != nil && (from.ConfigMapKeyRef != nil || from.SecretKeyRef != nil)
	}) || slices.ContainsFunc(c.EnvFrom, func(e corev1.EnvFromSource) bool {
		return e.ConfigMapRef != nil || e.SecretRef != nil
	})
	reported := slices.ContainsFunc(sc.reported[1], func(e string) bool {
		return notRead.MatchString(e) && strings.Contains(e, "{"+c.Name+"}")
	})
	warnings := 0
	for kind, n := range sc.spoke[1] {
		if strings.HasPrefix(kind, "Warning ") {
			warnings += n
		}
	}
	return reads && (reported || warnings >= 24) && sc.startedMore(0, c.Name) && !sc.startedMore(1, c.Name)
}

// diedAfterTheOthers reports whether our agent alone stopped a sidecar or an ephemeral container of a pod that has
// ended with its sandbox.
func diedAfterTheOthers(d Difference) bool {
	m := stoppingOf.FindStringSubmatch(d.Ours)
	if d.Kind != "call" && d.Kind != "event" || m == nil || d.Theirs != absent || !d.ended() ||
		len(d.Life.steps(killBox)) == 0 {
		return false
	}
	name := m[1] + m[2]
	return !d.Life.regular(name) && d.scene.has(0, "StopContainer "+name+"#") &&
		!d.scene.has(1, "StopContainer "+name+"#")
}

// refusedForItsUser reports whether upstream's agent alone made the directory of a container that neither has created,
// for it would run as root.
func refusedForItsUser(d Difference) bool {
	m := directoryOf.FindStringSubmatch(d.Where)
	if d.Kind != "file" || m == nil || d.Ours != absent || d.Theirs != "drwxr-x--- owner 0:0" {
		return false
	}
	for side := range d.scene.asked {
		refused := slices.ContainsFunc(d.scene.reported[side], func(e string) bool {
			return strings.HasPrefix(e, "Warning Failed: Error: container has runAsNonRoot and image will run as root (") &&
				strings.Contains(e, "{"+m[1]+"}")
		})
		if !refused || d.scene.has(side, "CreateContainer "+m[1]+"#") {
			return false
		}
	}
	return true
}

// restartedBeforeItHadStarted reports whether a sidecar with a startup probe ended by itself and was started again, by
// upstream's agent before a container that comes after it in the specification, and by ours after that one.
func restartedBeforeItHadStarted(d Difference) bool {
	m := beginsBefore.FindStringSubmatch(d.Theirs)
	if d.Kind != "order" || m == nil {
		return false
	}
	attempt, err := strconv.ParseUint(m[2], 10, 32)
	list := slices.Concat(d.Life.Pod.Spec.InitContainers, d.Life.Pod.Spec.Containers)
	place := func(name string) int {
		return slices.IndexFunc(list, func(c corev1.Container) bool { return c.Name == name })
	}
	sidecar, other := place(m[1]), place(m[3])
	if err != nil || attempt == 0 || sidecar < 0 || other <= sidecar {
		return false
	}
	c := list[sidecar]
	always := c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
	return always && !d.Life.regular(c.Name) && c.StartupProbe != nil &&
		!strings.HasSuffix(d.Life.program(c.Name, uint32(attempt-1)), forever)
}

// endedBeforeItsMirrorPod reports whether a static pod was created and ended on both sides while the agents were cut
// off, and only our agent has shown it afterwards.
func endedBeforeItsMirrorPod(d Difference) bool {
	if !d.Life.Static || !d.Life.late() || len(d.Between) == 0 || d.Between[0] != cutOff && d.Between[0] != cutOffLong {
		return false
	}
	never := d.Kind == "pod" && d.Where == "pod" && d.Theirs == "gone" || d.Kind == "seen" && d.Theirs == absent
	return never && !d.scene.shown[1] && d.scene.ended[0] && d.scene.has(1, "StopPodSandbox#")
}

// ofAStopWithoutRuntime reports whether upstream's agent could not stop a container while the runtime was down, and
// stopped only the sandbox afterwards, and the difference is in how the container was stopped.
func ofAStopWithoutRuntime(d Difference) bool {
	m := ofContainer.FindStringSubmatch(d.Ours)
	switch {
	case !slices.Contains(d.Between, restartRuntime):
		return false
	case d.Kind == "call" && d.Theirs == absent:
		if m != nil && strings.HasPrefix(d.Ours, "ExecSync ") && !d.Life.hasPreStop(m[1]) {
			return false
		}
	case d.Kind == "seen" && d.Theirs == absent:
		m = shownEnded.FindStringSubmatch(d.Ours)
	case d.Kind == "pod":
		m = stateOfOne.FindStringSubmatch(d.Where)
	default:
		return false
	}
	return m != nil && d.scene.has(0, "StopContainer "+m[1]+"#") && d.scene.has(1, "StopPodSandbox#") &&
		!d.scene.has(1, "StopContainer "+m[1]+"#") && slices.ContainsFunc(d.scene.reported[1], func(e string) bool {
		return strings.HasPrefix(e, "Warning FailedKillPod: ") &&
			slices.ContainsFunc(notStopped.FindAllStringSubmatch(e, -1), func(n []string) bool { return n[1] == m[1] })
	})
}

// ofARestartThatFailed reports whether upstream's agent stopped a container for its probe, failed to start it again,
// and ended the pod because the container had exited with 0.
func ofARestartThatFailed(d Difference) bool {
	if d.Kind == "request" || d.Kind == "file" || d.Life.Pod.Spec.RestartPolicy != corev1.RestartPolicyOnFailure {
		return false
	}
	return slices.ContainsFunc(d.Life.Pod.Spec.Containers, func(c corev1.Container) bool {
		killed := func(side int) bool {
			return slices.ContainsFunc(d.scene.reported[side], func(e string) bool {
				m := killedForProbe.FindStringSubmatch(e)
				return m != nil && m[1] == c.Name
			})
		}
		failed := d.scene.failed(1, "CreateContainer "+c.Name+"#") || d.scene.failed(1, "StartContainer "+c.Name+"#")
		return failed && killed(0) && killed(1) && d.scene.startedMore(0, c.Name) && !d.scene.startedMore(1, c.Name)
	})
}

// ownedByUser reports whether a token is readable by the user of the pod's containers alone. Root is such a user if the
// pod says so.
func ownedByUser(p *corev1.Pod, file string) bool {
	m := ofAUser.FindStringSubmatch(file)
	if m == nil || m[1] != "0" {
		return m != nil
	}
	root := func(uid *int64) bool { return uid != nil && *uid == 0 }
	if sc := p.Spec.SecurityContext; sc != nil && root(sc.RunAsUser) {
		return true
	}
	return slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool {
		return c.SecurityContext != nil && root(c.SecurityContext.RunAsUser)
	})
}

// pastItsDeadline reports whether a pod with a deadline was created while the runtime was down, exceeded the deadline
// on both sides, and one side had started more containers by then, after a call that failed because of the runtime.
func pastItsDeadline(d Difference) bool {
	late := d.Life.late() && len(d.Between) > 0 && d.Between[0] == restartRuntime
	if !late || d.Life.Pod.Spec.ActiveDeadlineSeconds == nil || !d.ended() {
		return false
	}
	for _, reported := range d.scene.reported {
		if !slices.ContainsFunc(reported, ofTheDeadline.MatchString) {
			return false
		}
	}
	delayed := slices.ContainsFunc(slices.Concat(d.scene.reported[0], d.scene.reported[1]), runtimeAway.MatchString)
	unlike := slices.ContainsFunc(containers(d.Life.Pod), func(c corev1.Container) bool {
		return d.scene.startedMore(0, c.Name) || d.scene.startedMore(1, c.Name)
	})
	if !delayed || !unlike {
		return false
	}
	switch d.Kind {
	case "pod":
		return strings.HasPrefix(d.Where, "status.conditions[") || strings.Contains(d.Where, "ontainerStatuses[")
	case "call", "event":
		return (d.Ours == absent) != (d.Theirs == absent)
	case "seen":
		return true
	}
	return false
}

// ofAPodThatWasStoppedSlowly reports whether our agent alone has shown that a pod runs, whose containers ran only for a
// short time and whose sandbox took long to stop. The phase of a pod that has ended does not change before that.
func ofAPodThatWasStoppedSlowly(d Difference) bool {
	slowly := slices.ContainsFunc(d.Life.Faults,
		func(f Fault) bool { return f.Method == "StopPodSandbox" && f.DelayMS > 0 })
	shown := d.Kind == "seen" && strings.HasPrefix(d.Ours, "phase: Running ") && d.Theirs == absent
	if !shown || !slowly || !d.ended() {
		return false
	}
	return !slices.ContainsFunc(slices.Concat(d.scene.asked[0], d.scene.asked[1]), func(call string) bool {
		m := startOf.FindStringSubmatch(call)
		return m != nil && d.Life.regular(m[1]) && (m[2] != "0" || !runsShortly(d.Life.program(m[1], 0)))
	})
}

// runsShortly reports whether a program ends by itself so soon that it need not be shown as running.
func runsShortly(program string) bool {
	m := shortProgram.FindStringSubmatch(program)
	if m == nil {
		return false
	}
	length, err := time.ParseDuration(m[1] + "s")
	return err == nil && length < passing
}

// wasDeferred reports whether a side has reported, or shows, that the node's pressure deferred a resize. The event
// may be lost.
func (sc *scene) wasDeferred(side int) bool {
	return slices.ContainsFunc(sc.reported[side], deferredForPressure) ||
		strings.Contains(sc.looks[side]["status.conditions[PodResizePending]"], "The node had condition: [DiskPressure]")
}

// hasPreStop reports whether a container has a preStop hook.
func (l *Life) hasPreStop(name string) bool {
	return slices.ContainsFunc(containers(l.Pod), func(c corev1.Container) bool {
		return c.Name == name && c.Lifecycle != nil && c.Lifecycle.PreStop != nil
	})
}

// regular reports whether one of spec.containers has the name.
func (l *Life) regular(name string) bool {
	return slices.ContainsFunc(l.Pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == name })
}
