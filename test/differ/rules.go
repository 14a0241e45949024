package differ

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Rule is a difference on purpose, or one that means nothing.
type Rule struct {
	Why string // the decision's number, or the reason
	is  func(Difference) bool
}

// Rules are all of them. A difference that several would explain counts for the first.
var Rules = []*Rule{
	{
		Why: "decision 0110: a pod's resources in its status come from its spec, not from its cgroup",
		is:  func(d Difference) bool { return d.Kind == "pod" && podResources.MatchString(d.Where) },
	},
	{
		Why: "decision 0111: an unset limit is the node's, also where a variable names an init container",
		is:  func(d Difference) bool { return d.Kind == "request" && d.Theirs == "0" && amountOfInit(d) },
	},
	{
		Why: "decision 0020: restarts that were recalled are noted in the pod's directory",
		is:  func(d Difference) bool { return d.Kind == "file" && d.Where == "restarts" && d.Theirs == absent },
	},
	{
		Why: "decision 0144: the file of a termination message is removed with its container",
		is:  ofATerminationLog,
	},
	{
		Why: "decision 0005: images are pulled in parallel, and while the sandbox is created",
		is: func(d Difference) bool {
			switch d.Kind {
			case "order":
				return strings.Contains(d.Where, "PullImage ")
			case "call":
				return strings.HasPrefix(d.Ours, "PullImage ")
			case "event":
				return ofImages.MatchString(d.Ours) || pulledBefore.MatchString(d.Theirs)
			case "pod":
				return strings.HasSuffix(d.Where, ".state") && ofAnImage.MatchString(d.Ours) && toBegin.MatchString(d.Theirs)
			case "said":
				return saidOfAnImage.MatchString(d.Ours)
			}
			return false
		},
	},
	{
		Why: "decision 0005: the sandbox is created and images are pulled while volumes cannot be mounted",
		is:  besideVolumes,
	},
	{
		Why: "containers without an order among them are stopped at the same time",
		is:  func(d Difference) bool { return d.Kind == "order" && stops.MatchString(d.Where) },
	},
	{
		Why: "ended containers are restarted independently of each other",
		is:  func(d Difference) bool { return d.Kind == "order" && restarts(d) },
	},
	{
		Why: "upstream shows a container that ended as terminated until its next sync, ours at once as waiting for its back-off",
		is: func(d Difference) bool {
			return d.Kind == "said" && d.Ours == absent && containerEnded.MatchString(d.Theirs)
		},
	},
	{
		Why: "ours updates observedGeneration and images also of a pod that has ended, upstream's does not",
		is: func(d Difference) bool {
			generation := strings.HasSuffix(d.Where, "observedGeneration") && d.Ours > d.Theirs
			return d.Kind == "pod" && d.ended() && (generation || len(d.Life.steps(patch)) > 0 && strings.HasSuffix(d.Where, ".image"))
		},
	},
	{
		Why: "any intermediate status may be skipped while the pod starts",
		is: func(d Difference) bool {
			return d.Kind == "said" && (onTheWay.MatchString(d.Ours) || onTheWay.MatchString(d.Theirs))
		},
	},
	{
		Why: "decision 0128: in a new sandbox only containers run that have not run yet or whose policy restarts them",
		is:  otherwiseRestarted,
	},
	{
		Why: "decision 0129: a failed StopContainer is retried before the sandbox is stopped",
		is:  ofAStopThatFailed,
	},
	{
		Why: "decision 0132: a pod that has ended is not resized",
		is: func(d Difference) bool {
			resized := d.Kind == "event" && ofResizes.MatchString(d.Theirs) || d.Kind == "pod" && strings.Contains(d.Where, "esources")
			return resized && d.scene.ended[0]
		},
	},
	{
		Why: "decision 0137: a rejected static pod has a mirror pod with the rejection",
		is: func(d Difference) bool {
			return d.Life.Static && (d.Where == "pod" && d.Theirs == "gone" || d.Theirs == absent) && d.scene.nothingAsked()
		},
	},
	{
		Why: "decision 0005: a resize does not wait for a container that is being stopped, nor for one to run",
		is: func(d Difference) bool {
			again := strings.HasPrefix(d.At, "CreateContainer ") && !strings.HasSuffix(d.At, "#0")
			return len(d.Life.steps(resize)) > 0 && (strings.Contains(d.Where, "UpdateContainerResources") ||
				strings.Contains(d.Where, "UpdatePodSandboxResources") ||
				again && strings.HasPrefix(d.Where, "CreateContainer config.linux.resources."))
		},
	},
	{
		Why: "decision 0139: the status of a rejected pod does not change when the pod is updated",
		is: func(d Difference) bool {
			return d.scene.refused[0] && d.scene.refused[1] && d.scene.nothingAsked() &&
				(d.Kind == "said" || d.Kind == "pod" && strings.HasPrefix(d.Where, "status.") || ofTheDeadline.MatchString(d.Theirs))
		},
	},
	{
		Why: "decision 0143: readiness gates of static pods are read from the mirror pod",
		is: func(d Difference) bool {
			ready := strings.HasSuffix(d.Where, "[Ready]") || strings.HasPrefix(d.Ours, "condition Ready: ")
			return d.Life.Static && len(d.Life.Pod.Spec.ReadinessGates) > 0 && (d.Kind == "pod" || d.Kind == "said") && ready &&
				strings.Contains(d.Theirs+d.Ours, "readiness gate")
		},
	},
	{
		Why: "decision 0153: the Killing event names the failed probe, also when the pod ends with the container",
		is: func(d Difference) bool {
			killing := killedForAProbe.MatchString(d.Ours) || strings.HasPrefix(d.Theirs, "Normal Killing: Stopping container ")
			return d.Kind == "event" && killing && slices.ContainsFunc(d.scene.told[0], killedForAProbe.MatchString)
		},
	},
	{
		Why: "decision 0153: ResizeCompleted shows the requested resources, also of containers that have ended",
		is: func(d Difference) bool {
			done := func(e string) bool { return strings.HasPrefix(e, "Normal ResizeCompleted: ") }
			return d.Kind == "event" && (done(d.Ours) || done(d.Theirs)) &&
				slices.ContainsFunc(d.scene.told[0], done) && slices.ContainsFunc(d.scene.told[1], done)
		},
	},
	{
		Why: "decision 0153: ResizeDeferred has the condition's reason also of a node under pressure",
		is: func(d Difference) bool {
			deferred := func(e string) bool {
				return strings.HasPrefix(e, "Warning ResizeDeferred: ") && strings.Contains(e, "The node had condition: [DiskPressure]")
			}
			return d.Kind == "event" && slices.Contains(d.Between, pressNode) && (deferred(d.Ours) || deferred(d.Theirs)) &&
				slices.ContainsFunc(d.scene.told[0], deferred) && slices.ContainsFunc(d.scene.told[1], deferred)
		},
	},
	{
		Why: "decision 0138: attempt numbers of init containers continue in a new sandbox",
		is:  ofInitAnew,
	},
	{
		Why: "decision 0142: a container that is stopped for its new image is waited for",
		is:  waitsForItsNewImage,
	},
	{
		Why: "decision 0141: an orphaned container is stopped with its own grace period",
		is:  ofAnOrphan,
	},
	{
		Why: "after a failed CreateContainer upstream syncs the pod when the back-off may be over, ours before",
		is: func(d Difference) bool {
			m := backOffOf.FindStringSubmatch(d.Ours)
			return d.Kind == "event" && m != nil && d.Theirs == absent && d.scene.failed(1, "CreateContainer "+m[1]+"#")
		},
	},
	{
		Why: "a restarted upstream agent has lost the status of a static pod, and runs one again that has ended",
		is: func(d Difference) bool {
			if !d.Life.Static || !d.restarted() {
				return false
			}
			forgotten := d.Theirs == absent || d.Theirs == "{}"
			return d.ended() && d.scene.ranAgain(1) && !d.scene.ranAgain(0) ||
				d.Kind == "pod" && forgotten && ofTheAgentBefore.MatchString(d.Where)
		},
	},
	{
		Why: "decision 0140: a restarted agent does not change the status of a pod that has ended",
		is: func(d Difference) bool {
			if !d.ended() || !d.restarted() {
				return false
			}
			kept := d.Kind == "pod" && (strings.HasPrefix(d.Where, "status.podIP") || strings.HasPrefix(d.Where, "status.ephemeralContainerStatuses["))
			return kept || d.Ours == absent && ofTheDeadline.MatchString(d.Theirs) && d.Life.Pod.Spec.ActiveDeadlineSeconds != nil
		},
	},
	{
		Why: "decision 0133: a container that could not be started does not count as restarted",
		is: func(d Difference) bool {
			return slices.ContainsFunc(containers(d.Life.Pod), func(c corev1.Container) bool {
				return d.scene.failed(1, "StartContainer "+c.Name+"#") && strings.Contains(d.Where+d.Ours+d.Theirs, c.Name)
			})
		},
	},
	{
		Why: "upstream applies a resize that was made while it was down up to 30 s later",
		is: func(d Difference) bool {
			return d.Kind == "pod" && strings.Contains(d.Where, "esources") && d.restarted() &&
				slices.ContainsFunc(d.Life.Acts, func(a Act) bool {
					return slices.ContainsFunc(a.Down, func(s Step) bool { return s.Verb == resize })
				})
		},
	},
	{
		Why: "StopContainer has the remaining grace period, rounded to seconds",
		is:  aboutAsLong,
	},
	{
		Why: "each agent drops or aggregates events of a pod that has many",
		is: func(d Difference) bool {
			if d.Kind != "event" {
				return false
			}
			reason := subject(d.Ours)
			if d.Ours == absent {
				reason = subject(d.Theirs)
			}
			for _, spoke := range d.scene.spoke {
				if spoke[""] >= 24 || spoke[reason] >= 9 {
					return true
				}
			}
			return false
		},
	},
	{
		Why: "an agent tries to mount before its caches have the objects of the pod, or the authorizer has the pod",
		is: func(d Difference) bool {
			early := d.Ours == absent && beforeItKnows.MatchString(d.Theirs) || d.Theirs == absent && beforeItKnows.MatchString(d.Ours)
			return (d.Kind == "event" || d.Kind == "said") && (early || tokenOfNone.MatchString(d.Ours))
		},
	},
	{
		Why: "which calls are under way when the runtime goes down is random",
		is: func(d Difference) bool {
			told := d.Kind == "event" || d.Kind == "said"
			return told && slices.Contains(d.Between, restartRuntime) && runtimeAway.MatchString(d.Ours+d.Theirs)
		},
	},
	{
		Why: "a probe may be under way when its container ends",
		is: func(d Difference) bool {
			return d.Kind == "event" && underWay.MatchString(d.Ours+d.Theirs)
		},
	},
	{
		Why: "which IDs of the node a user namespace has is each agent's choice",
		is: func(d Difference) bool {
			users := d.Life.Pod.Spec.HostUsers
			chosen := d.Kind == "file" && d.Where == "userns" || d.Kind == "request" && hostIDs.MatchString(d.Where)
			return users != nil && !*users && chosen
		},
	},
	{
		Why: "upstream at times sets up a volume before it has made the pod's directory, with another mode",
		is: func(d Difference) bool {
			return d.Kind == "file" && (d.Where == "." || d.Where == "volumes") && d.Theirs == "drwxr-xr-x owner 0:0"
		},
	},
}

// ofAttempt is a call that is about one attempt of a container.
const ofAttempt = `(?:CreateContainer|StartContainer|StopContainer|ExecSync) (\S+)#(\d+)`

var (
	terminationLog = regexp.MustCompile(`^containers/[^/]+/RANDOM$`)
	podResources   = regexp.MustCompile(`^status\.resources(\.|$)`)
	containerEnded = regexp.MustCompile(`^container \S+: terminated `)
	later          = regexp.MustCompile(`^` + ofAttempt + `.* and ` + ofAttempt)
	variable       = regexp.MustCompile(`^CreateContainer config\.envs\[([^\]]+)\]\.value`)
	stops          = regexp.MustCompile(`^(StopContainer|ExecSync) .* and (StopContainer|ExecSync) `)
	ofImages       = regexp.MustCompile(`^(Normal (Pulling|Pulled)|Normal BackOff|Warning ErrImageNeverPull): |` +
		`^Warning Failed: (Failed to pull image|Error: (ErrImage|ImagePull))`)
	pulledBefore = regexp.MustCompile(`^Normal Pulled: Container image .* already present on machine`)
	// A command that is killed with its container has printed nothing.
	underWay        = regexp.MustCompile(`probe errored and resulted in unknown state|Warning Unhealthy: \S+ probe failed: , about`)
	backOffOf       = regexp.MustCompile(`^Warning BackOff: Back-off restarting failed container (\S+) in pod `)
	killedForAProbe = regexp.MustCompile(`^Normal Killing: Container \S+ failed (liveness|startup) probe, about`)
	tokenOfNone     = regexp.MustCompile(`failed to fetch token: pod \S+ not found`) // of a pod that is deleted meanwhile
	beforeItKnows   = regexp.MustCompile(`failed to sync (configmap|secret) cache: timed out|object \S+ not registered|` +
		`failed to fetch token: pod \S+ not found`)
	stopWithin = regexp.MustCompile(`^(StopContainer \S+) within (\d+) s(.*)$`)
	// What a status keeps of the one before.
	ofTheAgentBefore = regexp.MustCompile(`\.(volumeMounts|lastState|restartCount)$|^status\.podIP`)
	ofAnImage        = regexp.MustCompile(`waiting\.reason=(ErrImage|ImagePull|ErrImageNeverPull)`)
	saidOfAnImage    = regexp.MustCompile(`^container \S+: waiting (ErrImage|ImagePull|ErrImageNeverPull)`)
	hostIDs          = regexp.MustCompile(`\.hostId$`)
	toBegin          = regexp.MustCompile(`^waiting\.reason=(PodInitializing|ContainerCreating)$`)
	ofTheDeadline    = regexp.MustCompile(`DeadlineExceeded|^Pod was active on the node longer than the specified deadline$`)
	runtimeAway      = regexp.MustCompile(`code = Unavailable|: Error: ImageInspectError`)
	ofResizes        = regexp.MustCompile(`^Normal Resize`)
	onTheWay         = regexp.MustCompile(`waiting (ContainerCreating|PodInitializing) |^phase: Pending  |with (unready|incomplete) status: `)
)

// ruleFor is the rule that explains a difference, or nil.
func ruleFor(d Difference) *Rule {
	for _, r := range Rules {
		if r.is(d) {
			return r
		}
	}
	return nil
}

// ofATerminationLog reports whether both sides have such files, and ours fewer of them.
func ofATerminationLog(d Difference) bool {
	if d.Kind != "file" || !terminationLog.MatchString(d.Where) || d.Ours == absent {
		return false
	}
	theirs := strings.Split(d.Theirs, alsoFile)
	for _, file := range strings.Split(d.Ours, alsoFile) {
		i := slices.Index(theirs, file)
		if i < 0 {
			return false
		}
		theirs = slices.Delete(theirs, i, i+1)
	}
	return true
}

// besideVolumes reports whether upstream's agent has no sandbox because volumes cannot be
// mounted, and the difference is in what ours has done meanwhile. Theirs waits up to two
// minutes for the volumes, and does not sync the pod before that.
func besideVolumes(d Difference) bool {
	if !d.scene.waitsForVolumes() {
		return false
	}
	switch d.Kind {
	case "pod":
		return strings.HasPrefix(d.Where, "status.")
	case "call", "event":
		return d.Theirs == absent
	case "order", "said", "step":
		return true
	}
	return false
}

// ofAStopThatFailed reports whether a container could not be stopped on upstream's side, and the
// difference is in how containers and their sandbox were stopped.
func ofAStopThatFailed(d Difference) bool {
	if !d.scene.failed(1, "StopContainer ") {
		return false
	}
	switch d.Kind {
	case "call", "order":
		return strings.Contains(d.Where, "StopContainer ") || strings.Contains(d.Where, "StopPodSandbox#")
	case "event":
		return strings.Contains(d.Ours+d.Theirs, "Warning FailedKillPod: ")
	case "said":
		return containerEnded.MatchString(d.Ours) || containerEnded.MatchString(d.Theirs)
	case "pod":
		return strings.HasSuffix(d.Where, ".state") || strings.HasSuffix(d.Where, ".lastState")
	}
	return false
}

// otherwiseRestarted reports whether the sandbox has died, and upstream's agent created no new one
// for a pod with policy Never, or restarted a container whose own policy is Never.
func otherwiseRestarted(d Difference) bool {
	spec := d.Life.Pod.Spec
	if spec.RestartPolicy == corev1.RestartPolicyNever {
		return d.scene.ranAgain(0) && !d.scene.ranAgain(1)
	}
	return d.scene.ranAgain(1) && slices.ContainsFunc(spec.Containers, func(c corev1.Container) bool {
		never := c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyNever
		return never && slices.ContainsFunc(d.scene.asked[1], func(call string) bool {
			return strings.HasPrefix(call, "StartContainer "+c.Name+"#") && !slices.Contains(d.scene.asked[0], call)
		})
	})
}

// ofInitAnew reports whether a difference is about an init container of a pod with a second sandbox: one
// after the first, one whose first CreateContainer failed, one that was backed off, or the last state of any.
func ofInitAnew(d Difference) bool {
	if !slices.Contains(d.scene.asked[1], "RunPodSandbox#1") {
		return false
	}
	inits := d.Life.Pod.Spec.InitContainers
	return slices.ContainsFunc(inits, func(c corev1.Container) bool {
		later := len(inits) > 1 || d.scene.failed(1, "CreateContainer "+c.Name+"#") ||
			slices.ContainsFunc(d.scene.told[1], func(e string) bool {
				m := backOffOf.FindStringSubmatch(e)
				return m != nil && m[1] == c.Name
			})
		// The container that ran in the old sandbox may be removed before its end is in a status.
		lost := d.Kind == "pod" && d.Where == "status.initContainerStatuses["+c.Name+"].lastState" && d.Theirs == "{}"
		return lost || later && strings.Contains(d.Where+d.Ours+d.Theirs, c.Name)
	})
}

// waitsForItsNewImage reports whether a container was stopped on both sides because its image changed and could
// not be started again, and upstream's agent took that for its end.
func waitsForItsNewImage(d Difference) bool {
	if d.scene.ended[0] || !d.scene.ended[1] {
		return false
	}
	return slices.ContainsFunc(containers(d.Life.Pod), func(c corev1.Container) bool {
		changed := "Normal Killing: Container " + c.Name + " definition changed, will be restarted"
		both := func(told []string) bool {
			failed := func(e string) bool {
				return strings.HasPrefix(e, "Warning Failed: ") && strings.Contains(e, "{"+c.Name+"}")
			}
			killed := func(e string) bool { return strings.HasPrefix(e, changed) }
			return slices.ContainsFunc(told, killed) && slices.ContainsFunc(told, failed)
		}
		return both(d.scene.told[0]) && both(d.scene.told[1])
	})
}

// ofAnOrphan reports whether upstream's agent stopped a container with the minimum grace period
// after a static pod's manifest was removed or a deletion was forced, and the difference is in what
// that container does meanwhile.
func ofAnOrphan(d Difference) bool {
	removed := slices.ContainsFunc(d.Life.steps(remove), func(s Step) bool { return d.Life.Static || s.Grace == 0 })
	return removed && slices.ContainsFunc(d.scene.asked[1], func(call string) bool {
		m := stopWithin.FindStringSubmatch(call)
		if m == nil || m[2] != "2" {
			return false
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(m[1], "StopContainer "), "#")
		return strings.Contains(d.Where+d.Ours+d.Theirs, name) || strings.Contains(d.Where, "StopPodSandbox#")
	})
}

// aboutAsLong reports whether StopContainer was called on both sides with grace periods that
// differ by at most two seconds.
func aboutAsLong(d Difference) bool {
	call := d.Ours
	other := 1
	if d.Ours == absent {
		call, other = d.Theirs, 0
	}
	m := stopWithin.FindStringSubmatch(call)
	if d.Kind != "call" || m == nil {
		return false
	}
	n, err := strconv.Atoi(m[2])
	if err != nil {
		return false
	}
	for _, off := range []int{-2, -1, 1, 2} {
		if slices.Contains(d.scene.asked[other], fmt.Sprintf("%s within %d s%s", m[1], n+off, m[3])) {
			return true
		}
	}
	return false
}

// amountOfInit reports whether a request's difference is in a variable that is, in one of the
// containers, an amount of an init container given by name.
func amountOfInit(d Difference) bool {
	m := variable.FindStringSubmatch(d.Where)
	if m == nil {
		return false
	}
	inits := d.Life.Pod.Spec.InitContainers
	return slices.ContainsFunc(slices.Concat(inits, d.Life.Pod.Spec.Containers), func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
			if e.Name != m[1] || e.ValueFrom == nil || e.ValueFrom.ResourceFieldRef == nil {
				return false
			}
			named := e.ValueFrom.ResourceFieldRef.ContainerName
			return slices.ContainsFunc(inits, func(c corev1.Container) bool { return c.Name == named })
		})
	})
}

// restarts reports whether calls are about two containers that do not wait for each other, at
// least one of which was not there for the first time.
func restarts(d Difference) bool {
	m := later.FindStringSubmatch(d.Where)
	if m == nil || m[1] == m[3] || m[2] == "0" && m[4] == "0" {
		return false
	}
	return !slices.ContainsFunc(d.Life.Pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == m[1] || c.Name == m[3] })
}
