package differ

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Rule explains differences that exist on purpose, or that are no defect.
type Rule struct {
	Why string // the decision's number, or the reason
	is  func(Difference) bool
}

// Rules are all rules. A difference that several rules explain counts for the first of them.
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
		Why: "decision 0020: restarts by the agent are noted in the pod's directory",
		is:  func(d Difference) bool { return d.Kind == "file" && d.Where == "restarts" && d.Theirs == absent },
	},
	{
		Why: "decision 0144: the file of a termination message is removed with its container",
		is:  ofATerminationLog,
	},
	{
		Why: "upstream may look for a container's message in its log while that is removed with the container",
		is: func(d Difference) bool {
			m := removedLog.FindStringSubmatch(d.Theirs)
			return d.Kind == "pod" && strings.HasSuffix(d.Where, "].lastState") && m != nil && d.Ours == m[1]+m[2]
		},
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
				return strings.HasSuffix(d.Where, ".state") && ofAnImage.MatchString(d.Ours) &&
					toBegin.MatchString(d.Theirs)
			case "seen":
				return imageMessage.MatchString(d.Ours)
			}
			return false
		},
	},
	{
		Why: "decision 0005: the sandbox is created and images are pulled while volumes cannot be mounted",
		is:  besideVolumes,
	},
	{
		Why: "upstream retries a mirror pod when it syncs the pod, which it does not while volumes cannot be mounted",
		is: func(d Difference) bool {
			cut := slices.Contains(d.Between, cutOff) || slices.Contains(d.Between, cutOffLong)
			return d.Kind == "pod" && d.Life.Static && cut && d.Where == "pod" && d.Theirs == "gone" &&
				d.scene.waitsForVolumes()
		},
	},
	{
		Why: "upstream creates a mirror pod when it syncs the pod, which it does no more once the pod has ended",
		is:  endedBeforeItsMirrorPod,
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
		Why: "decision 0125: the startup probe of a sidecar is answered sooner; one that ends meanwhile is restarted " +
			"upstream before the next container begins",
		is: restartedBeforeItHadStarted,
	},
	{
		Why: "upstream starts the next container if it has not read the objects of the one before in time",
		is: func(d Difference) bool {
			return startsSooner(d, d.Theirs, d.scene.reported[1], notRead)
		},
	},
	{
		Why: "decision 0005: an image is fetched before the sandbox is there, and may fail as the runtime goes down",
		is: func(d Difference) bool {
			return slices.Contains(d.Between, restartRuntime) &&
				startsSooner(d, d.Ours, d.scene.reported[0], imageWithoutRuntime)
		},
	},
	{
		Why: "upstream shows a container that ended as terminated until its next sync, ours at once as waiting for its back-off",
		is: func(d Difference) bool {
			return d.Kind == "seen" && d.Ours == absent && containerEnded.MatchString(d.Theirs)
		},
	},
	{
		Why: "ours updates observedGeneration and images also of a pod that has ended, upstream's does not",
		is: func(d Difference) bool {
			generation := strings.HasSuffix(d.Where, "observedGeneration") && d.Ours > d.Theirs
			return d.Kind == "pod" && d.ended() &&
				(generation || len(d.Life.steps(patch)) > 0 && strings.HasSuffix(d.Where, ".image"))
		},
	},
	{
		Why: "any intermediate status may be skipped while the pod starts",
		is: func(d Difference) bool {
			return d.Kind == "seen" && (onTheWay.MatchString(d.Ours) || onTheWay.MatchString(d.Theirs))
		},
	},
	{
		Why: "upstream may show a container as running long after it has ended, and ours only its end",
		is:  ofAShortRun,
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
		Why: "decision 0129: a container that could not be stopped while the runtime was down is stopped afterwards",
		is:  ofAStopWithoutRuntime,
	},
	{
		Why: "decision 0146: a container that was stopped for its probe is started again, also after a start that failed",
		is:  ofARestartThatFailed,
	},
	{
		Why: "each agent retries in its own time what failed while the runtime was down, and a deadline may pass first",
		is:  pastItsDeadline,
	},
	{
		Why: "upstream may skip a short run, and the pod is pending in its status until the sandbox has been stopped",
		is:  ofAPodThatWasStoppedSlowly,
	},
	{
		Why: "decision 0132: a pod that has ended is not resized",
		is: func(d Difference) bool {
			deferred := d.Ours == absent && deferredForPressure(d.Theirs)
			resized := d.Kind == "event" && (ofResizes.MatchString(d.Theirs) || deferred) ||
				d.Kind == "pod" && strings.Contains(d.Where, "esources")
			return resized && d.scene.ended[0]
		},
	},
	{
		Why: "decision 0137: a rejected static pod has a mirror pod with the rejection",
		is: func(d Difference) bool {
			return d.Life.Static && (d.Where == "pod" && d.Theirs == "gone" || d.Theirs == absent) &&
				d.scene.nothingAsked()
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
				(d.Kind == "seen" || d.Kind == "pod" && strings.HasPrefix(d.Where, "status.") ||
					ofTheDeadline.MatchString(d.Theirs))
		},
	},
	{
		Why: "decision 0139: a rejected static pod has no deadline",
		is: func(d Difference) bool {
			return d.Kind == "event" && d.Ours == absent && strings.HasPrefix(d.Theirs, "Normal DeadlineExceeded: ") &&
				d.Life.Static && d.Life.Pod.Spec.ActiveDeadlineSeconds != nil && d.rejected()
		},
	},
	{
		Why: "upstream may begin to mount the volumes of a pod before it rejects the pod",
		is: func(d Difference) bool {
			return d.Kind == "event" && d.Ours == absent && strings.HasPrefix(d.Theirs, "Warning FailedMount: ") &&
				d.rejected()
		},
	},
	{
		Why: "decision 0143: readiness gates of static pods are read from the mirror pod",
		is: func(d Difference) bool {
			ready := strings.HasSuffix(d.Where, "[Ready]") || strings.HasPrefix(d.Ours, "condition Ready: ")
			always := d.Kind == "seen" && d.Theirs == absent && len(d.Life.steps(status)) > 0 &&
				strings.HasPrefix(d.Ours, "condition Ready: True ") // the gate was closed upstream
			return d.Life.Static && len(d.Life.Pod.Spec.ReadinessGates) > 0 && (d.Kind == "pod" || d.Kind == "seen") &&
				ready && (always || strings.Contains(d.Theirs+d.Ours, "readiness gate"))
		},
	},
	{
		Why: "decision 0153: the Killing event names the failed probe, also when the pod ends with the container",
		is: func(d Difference) bool {
			killing := killedForAProbe.MatchString(d.Ours) ||
				strings.HasPrefix(d.Theirs, "Normal Killing: Stopping container ")
			return d.Kind == "event" && killing && slices.ContainsFunc(d.scene.reported[0], killedForAProbe.MatchString)
		},
	},
	{
		Why: "decision 0153: ResizeCompleted shows the requested resources, also of containers that have ended",
		is: func(d Difference) bool {
			done := func(e string) bool { return strings.HasPrefix(e, "Normal ResizeCompleted: ") }
			return d.Kind == "event" && (done(d.Ours) || done(d.Theirs)) &&
				slices.ContainsFunc(d.scene.reported[0], done) && slices.ContainsFunc(d.scene.reported[1], done)
		},
	},
	{
		Why: "decision 0153: ResizeDeferred has the condition's reason also of a node under pressure",
		is: func(d Difference) bool {
			return d.Kind == "event" && slices.Contains(d.Between, pressNode) &&
				(deferredForPressure(d.Ours) || deferredForPressure(d.Theirs)) &&
				slices.ContainsFunc(d.scene.reported[0], deferredForPressure) &&
				slices.ContainsFunc(d.scene.reported[1], deferredForPressure)
		},
	},
	{
		Why: "decision 0153: sidecars have a whole grace period when the pod ends with a container that failed a probe",
		is:  ofASidecarAfterAProbe,
	},
	{
		Why: "decision 0153: FailedKillPod also when a pod ends while sidecars or ephemeral containers run",
		is:  ofAStopAfterTheEnd,
	},
	{
		Why: "each agent retries a resize that a node under pressure deferred by a clock of its own, every 30 s to 3 min",
		is: func(d Difference) bool {
			shown := strings.Contains(d.Where, "esources") ||
				strings.HasPrefix(d.Where, "status.conditions[PodResizePending]")
			return d.Kind == "pod" && shown && slices.Contains(d.Between, pressNode) &&
				d.scene.wasDeferred(0) && d.scene.wasDeferred(1)
		},
	},
	{
		Why: "decision 0005: a container whose image changes while it is stopped is started once, with the new image",
		is:  changedWhileStopped,
	},
	{
		Why: "a restart of all containers does not wait for a container that is being restarted for itself",
		is:  ofARestartBeforeAll,
	},
	{
		Why: "containers that die with their sandbox are seen to one after the other, and the last ones may be stopped first",
		is:  diedAfterTheOthers,
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
			dropped := d.Theirs == absent || d.Theirs == "{}"
			kept := ofTheAgentBefore.MatchString(d.Where) ||
				d.ended() && (d.Where == "status.reason" || d.Where == "status.message")
			return d.ended() && d.scene.ranAgain(1) && !d.scene.ranAgain(0) || d.Kind == "pod" && dropped && kept
		},
	},
	{
		Why: "decision 0140: a restarted agent does not change the status of a pod that has ended",
		is: func(d Difference) bool {
			if !d.ended() || !d.restarted() {
				return false
			}
			kept := d.Kind == "pod" &&
				(strings.HasPrefix(d.Where, "status.podIP") ||
					strings.HasPrefix(d.Where, "status.ephemeralContainerStatuses["))
			return kept ||
				d.Ours == absent && ofTheDeadline.MatchString(d.Theirs) && d.Life.Pod.Spec.ActiveDeadlineSeconds != nil
		},
	},
	{
		Why: "decision 0133: a container that could not be started does not count as restarted",
		is: func(d Difference) bool {
			return slices.ContainsFunc(containers(d.Life.Pod), func(c corev1.Container) bool {
				return d.scene.failed(1, "StartContainer "+c.Name+"#") &&
					strings.Contains(d.At+d.Where+d.Ours+d.Theirs, c.Name)
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
			early := d.Ours == absent && beforeItKnows.MatchString(d.Theirs) ||
				d.Theirs == absent && beforeItKnows.MatchString(d.Ours)
			return (d.Kind == "event" || d.Kind == "seen") && (early || tokenOfNone.MatchString(d.Ours))
		},
	},
	{
		Why: "which calls are under way when the runtime goes down is random",
		is: func(d Difference) bool {
			reported := d.Kind == "event" || d.Kind == "seen"
			return reported && slices.Contains(d.Between, restartRuntime) && runtimeAway.MatchString(d.Ours+d.Theirs)
		},
	},
	{
		Why: "whether a terminated pod counts as initialized depends on the status that was written last",
		is: func(d Difference) bool {
			lost := func(s string) bool { return strings.Contains(s, "terminated.reason=ContainerStatusUnknown") }
			waiting := func(s string) bool { return strings.Contains(s, "waiting.reason=") }
			if !d.ended() || len(d.Life.Pod.Spec.InitContainers) == 0 {
				return false
			}
			m := containerLost.FindStringSubmatch(d.Ours)
			shown := d.Kind == "seen" && d.Theirs == absent && m != nil && isRegular(d.Life.Pod, m[1]) &&
				!d.scene.has(0, "CreateContainer "+m[1]+"#") && !d.scene.has(1, "CreateContainer "+m[1]+"#")
			return shown || d.Kind == "pod" && ofARegularContainer.MatchString(d.Where) &&
				(lost(d.Ours) && waiting(d.Theirs) || waiting(d.Ours) && lost(d.Theirs))
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
		Why: "upstream opens the token of a pod to all users when it writes it anew and the pod has an ephemeral container",
		is: func(d Difference) bool {
			return d.Kind == "file" && tokenFile.MatchString(d.Where) && ownedByUser(d.Life.Pod, d.Ours) &&
				d.Theirs == "-rw-r--r-- owner 0:0 content TOKEN" && len(d.Life.steps(ephemeral)) > 0 && d.restarted()
		},
	},
	{
		Why: "upstream makes the directory of a container before it checks the container's user",
		is:  refusedForItsUser,
	},
	{
		Why: "upstream at times sets up a volume before it has made the pod's directory, with another mode",
		is: func(d Difference) bool {
			return d.Kind == "file" && (d.Where == "." || d.Where == "volumes") && d.Theirs == "drwxr-xr-x owner 0:0"
		},
	},
}

// ofAttempt matches a call for one attempt of a container.
const ofAttempt = `(?:CreateContainer|StartContainer|StopContainer|ExecSync) (\S+)#(\d+)`

var (
	terminationLog = regexp.MustCompile(`^containers/[^/]+/RANDOM$`)
	podResources   = regexp.MustCompile(`^status\.resources(\.|$)`)
	containerEnded = regexp.MustCompile(`^container \S+: terminated `)
	containerLost  = regexp.MustCompile(`^container (\S+): terminated 137 signal 0 ContainerStatusUnknown `)
	later          = regexp.MustCompile(`^` + ofAttempt + `.* and ` + ofAttempt)
	laterBefore    = regexp.MustCompile(`^` + ofAttempt + `.* before ` + ofAttempt)
	shownRunning   = regexp.MustCompile(`^container (\S+): running, (\d+) restarts$`)
	shortProgram   = regexp.MustCompile(`^sleep ([\d.]+);`) // one that ends by itself
	notRead        = regexp.MustCompile(`^Warning Failed: Error: failed to sync \S+ cache: timed out waiting`)
	variable       = regexp.MustCompile(`^CreateContainer config\.envs\[([^\]]+)\]\.value`)
	stops          = regexp.MustCompile(`^(StopContainer|ExecSync) .* and (StopContainer|ExecSync) `)
	ofImages       = regexp.MustCompile(`^(Normal (Pulling|Pulled)|Normal BackOff|Warning ErrImageNeverPull): |` +
		`^Warning Failed: (Failed to pull image|Error: (ErrImage|ImagePull))`)
	pulledBefore = regexp.MustCompile(`^Normal Pulled: Container image .* already present on machine`)
	// A command that is killed with its container has printed nothing.
	underWay = regexp.MustCompile(
		`probe errored and resulted in unknown state|Warning Unhealthy: \S+ probe failed: , about`)
	backOffOf       = regexp.MustCompile(`^Warning BackOff: Back-off restarting failed container (\S+) in pod `)
	killedForAProbe = regexp.MustCompile(`^Normal Killing: Container \S+ failed (liveness|startup) probe, about`)
	// of a pod that is deleted meanwhile
	tokenOfNone   = regexp.MustCompile(`failed to fetch token: pod \S+ not found`)
	beforeItKnows = regexp.MustCompile(`failed to sync (configmap|secret) cache: timed out|object \S+ not registered|` +
		`failed to fetch token: pod \S+ not found|is forbidden: User "system:node:`)
	removedLog = regexp.MustCompile(
		`^(terminated\..*) terminated\.message=Error on reading termination message from logs: failed to try ` +
			`resolving symlinks in path "[^"]+": lstat \S+: no such file or directory( terminated\.reason=.*)$`)
	stopWithin = regexp.MustCompile(`^(StopContainer \S+) within (\d+) s(.*)$`)
	// What an agent takes over from the status of the agent before it.
	ofTheAgentBefore = regexp.MustCompile(`\.(volumeMounts|lastState|restartCount)$|^status\.podIP`)
	ofAnImage        = regexp.MustCompile(`waiting\.reason=(ErrImage|ImagePull|ErrImageNeverPull)`)
	imageMessage     = regexp.MustCompile(`^container \S+: waiting (ErrImage|ImagePull|ErrImageNeverPull)`)
	hostIDs          = regexp.MustCompile(`\.hostId$`)
	toBegin          = regexp.MustCompile(`^waiting\.reason=(PodInitializing|ContainerCreating)$`)
	ofTheDeadline    = regexp.MustCompile(
		`DeadlineExceeded|^Pod was active on the node longer than the specified deadline$`)
	imageWithoutRuntime = regexp.MustCompile(
		`^Warning (Failed: Failed to pull|InspectFailed: Failed to inspect) image .* code = Unavailable `)
	runtimeAway = regexp.MustCompile(`code = Unavailable|: Error: ImageInspectError`)
	// The state of one of spec.containers.
	ofARegularContainer = regexp.MustCompile(`^status\.containerStatuses\[[^\]]+\]\.state$`)
	ofResizes           = regexp.MustCompile(`^Normal Resize`)
	onTheWay            = regexp.MustCompile(
		`waiting (ContainerCreating|PodInitializing) |^phase: Pending  |with (unready|incomplete) status: `)
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

// ofATerminationLog reports whether both sides have files of termination messages, and ours has fewer of them.
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
// mounted, and the difference is in what our agent has done meanwhile. Upstream's agent waits up
// to two minutes for the volumes, and does not sync the pod before that.
func besideVolumes(d Difference) bool {
	if !d.scene.waitsForVolumes() {
		return false
	}
	switch d.Kind {
	case "pod":
		return strings.HasPrefix(d.Where, "status.")
	case "call", "event":
		return d.Theirs == absent
	case "order", "seen", "step":
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
		// A retry runs the preStop hook again.
		m := failedPreStop.FindStringSubmatch(d.Ours)
		hook := m != nil && d.Theirs == absent && d.scene.failed(0, "StopContainer "+m[1]+"#") &&
			d.scene.failed(1, "StopContainer "+m[1]+"#")
		return hook || strings.Contains(d.Ours+d.Theirs, "Warning FailedKillPod: ")
	case "seen":
		return containerEnded.MatchString(d.Ours) || containerEnded.MatchString(d.Theirs)
	case "pod":
		return strings.HasSuffix(d.Where, ".state") || strings.HasSuffix(d.Where, ".lastState")
	}
	return false
}

// deferredForPressure reports whether an event is that of a resize which the node's pressure deferred.
func deferredForPressure(event string) bool {
	return strings.HasPrefix(event, "Warning ResizeDeferred: ") &&
		strings.Contains(event, "The node had condition: [DiskPressure]")
}

// ofASidecarAfterAProbe reports whether the pod ended with a container that failed a probe, and a sidecar was stopped
// with the whole grace period by our agent and with the rest of a grace period by upstream's.
func ofASidecarAfterAProbe(d Difference) bool {
	call := d.Ours
	if call == absent {
		call = d.Theirs
	}
	m := stopWithin.FindStringSubmatch(call)
	if d.Kind != "call" || m == nil || !d.scene.ended[0] || !d.scene.ended[1] ||
		!slices.ContainsFunc(d.scene.reported[0], killedForAProbe.MatchString) ||
		slices.ContainsFunc(d.scene.reported[1], killedForAProbe.MatchString) {
		return false
	}
	within := func(side int) int64 {
		for _, c := range d.scene.asked[side] {
			if n := stopWithin.FindStringSubmatch(c); n != nil && n[1] == m[1] {
				s, err := strconv.ParseInt(n[2], 10, 64)
				if err != nil {
					return 0
				}
				return s
			}
		}
		return 0
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(m[1], "StopContainer "), "#")
	sidecar := slices.ContainsFunc(d.Life.Pod.Spec.InitContainers, func(c corev1.Container) bool {
		return c.Name == name && c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
	})
	whole := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if own := d.Life.Pod.Spec.TerminationGracePeriodSeconds; own != nil {
		whole = *own
	}
	return sidecar && within(0) == whole && within(1) > 0 && within(1) < whole
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

// ofInitAnew reports whether a difference is about an init container of a pod with a second sandbox, and the pod has
// several init containers, a CreateContainer of the container failed, it was backed off, or its objects were not read
// in time; or whether the difference is a missing last state of an init container.
func ofInitAnew(d Difference) bool {
	if !slices.Contains(d.scene.asked[1], "RunPodSandbox#1") {
		return false
	}
	inits := d.Life.Pod.Spec.InitContainers
	return slices.ContainsFunc(inits, func(c corev1.Container) bool {
		later := len(inits) > 1 || d.scene.failed(1, "CreateContainer "+c.Name+"#") || createdLate(d.scene, c) ||
			slices.ContainsFunc(d.scene.reported[1], func(e string) bool {
				m := backOffOf.FindStringSubmatch(e)
				return m != nil && m[1] == c.Name
			})
		// The container that ran in the old sandbox may be removed before its end is in a status.
		lost := d.Kind == "pod" && d.Where == "status.initContainerStatuses["+c.Name+"].lastState" && d.Theirs == "{}"
		return lost || later && strings.Contains(d.Where+d.Ours+d.Theirs, c.Name)
	})
}

// waitsForItsNewImage reports whether a container was stopped on both sides because its image changed and could
// not be started again, and upstream's agent treats it as terminated: the pod ended, or only our agent started the
// container later.
func waitsForItsNewImage(d Difference) bool {
	if d.scene.ended[0] {
		return false
	}
	return slices.ContainsFunc(containers(d.Life.Pod), func(c corev1.Container) bool {
		changed := "Normal Killing: Container " + c.Name + " definition changed, will be restarted"
		both := func(reported []string) bool {
			failed := func(e string) bool {
				return strings.HasPrefix(e, "Warning Failed: ") && strings.Contains(e, "{"+c.Name+"}")
			}
			killed := func(e string) bool { return strings.HasPrefix(e, changed) }
			return slices.ContainsFunc(reported, killed) && slices.ContainsFunc(reported, failed)
		}
		if !both(d.scene.reported[0]) || !both(d.scene.reported[1]) {
			return false
		}
		return d.scene.ended[1] || strings.Contains(d.Where+d.Ours+d.Theirs, c.Name) && d.scene.leftAfterFailure(c.Name)
	})
}

// ofAStopAfterTheEnd reports whether the sandbox could not be stopped on both sides and only our agent reported that,
// for a pod with sidecars or ephemeral containers, which do not keep the pod from ending.
func ofAStopAfterTheEnd(d Difference) bool {
	sidecar := func(c corev1.Container) bool {
		return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
	}
	others := len(d.Life.steps(ephemeral)) > 0 || slices.ContainsFunc(d.Life.Pod.Spec.InitContainers, sidecar)
	return d.Kind == "event" && strings.HasPrefix(d.Ours, "Warning FailedKillPod: ") && d.Theirs == absent && others &&
		d.scene.failed(0, "StopPodSandbox#") && d.scene.failed(1, "StopPodSandbox#")
}

// ofAnOrphan reports whether upstream's agent stopped a container with the minimum grace period
// after a static pod's manifest was removed or a deletion was forced, and the difference is about
// that container.
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

// amountOfInit reports whether a request's difference is in a variable that has, in one of the
// containers, a resource amount of an init container given by name (resourceFieldRef).
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

// restarts reports whether calls are about two containers that do not wait for each other, of which
// at least one was restarted.
func restarts(d Difference) bool {
	m := later.FindStringSubmatch(d.Where)
	if m == nil || m[1] == m[3] || m[2] == "0" && m[4] == "0" {
		return false
	}
	return !slices.ContainsFunc(d.Life.Pod.Spec.InitContainers,
		func(c corev1.Container) bool { return c.Name == m[1] || c.Name == m[3] })
}

// isRegular reports whether one of spec.containers has that name.
func isRegular(p *corev1.Pod, name string) bool {
	return slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool { return c.Name == name })
}

// startsSooner reports whether one side, which had this order of two calls, started a regular container for the first
// time before another one that comes earlier in the specification, and reported a failure of the latter that matches.
func startsSooner(d Difference, order string, reported []string, failure *regexp.Regexp) bool {
	m := laterBefore.FindStringSubmatch(order)
	if d.Kind != "order" || m == nil || m[2] != "0" || m[4] != "0" {
		return false
	}
	place := func(name string) int {
		return slices.IndexFunc(d.Life.Pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == name })
	}
	sooner, later := place(m[1]), place(m[3])
	return later >= 0 && sooner > later && slices.ContainsFunc(reported, func(e string) bool {
		return failure.MatchString(e) && strings.Contains(e, " about Pod spec.containers{"+m[3]+"}")
	})
}

// ofAShortRun reports whether upstream's agent alone has shown a container as running that ran on both sides, and only
// for so short a time that it need not be shown.
func ofAShortRun(d Difference) bool {
	m := shownRunning.FindStringSubmatch(d.Theirs)
	if d.Kind != "seen" || d.Ours != absent || m == nil {
		return false
	}
	attempt, err := strconv.ParseUint(m[2], 10, 32)
	if err != nil {
		return false
	}
	call := fmt.Sprintf("StartContainer %s#%s", m[1], m[2])
	return runsShortly(d.Life.program(m[1], uint32(attempt))) && slices.Contains(d.scene.asked[0], call) &&
		slices.Contains(d.scene.asked[1], call)
}
