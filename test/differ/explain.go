package differ

import (
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

var (
	stopOf        = regexp.MustCompile(`StopContainer (\S+)#\d+`)
	startAgainOf  = regexp.MustCompile(`(?:CreateContainer|StartContainer) (\S+)#[1-9]\d*`)
	startOf       = regexp.MustCompile(`^StartContainer (\S+)#(\d+)$`)
	stoppingOf    = regexp.MustCompile(`^(?:StopContainer (\S+)#|Normal Killing: Stopping container (\S+), about)`)
	failedPreStop = regexp.MustCompile(`^Warning FailedPreStopHook: .* about Pod spec\.\w+\{(\S+)\}`)
	tokenFile     = regexp.MustCompile(`^volumes/kubernetes\.io~projected/[^/]+/\.\.VERSION/token$`)
	ofAUser       = regexp.MustCompile(`^-rw------- owner [1-9]\d*:0 content TOKEN$`)
	directoryOf   = regexp.MustCompile(`^containers/([^/]+)$`)
)

// ofARestartBeforeAll reports whether, in a pod of which all containers are restarted for a rule, a container was
// stopped and another one started again in another order.
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
		more := func(side int) bool {
			return slices.ContainsFunc(d.scene.asked[side], func(call string) bool {
				m := startOf.FindStringSubmatch(call)
				return m != nil && m[1] == name && !slices.Contains(d.scene.asked[1-side], call)
			})
		}
		return more(1) && !more(0)
	})
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

// regular reports whether one of spec.containers has the name.
func (l *Life) regular(name string) bool {
	return slices.ContainsFunc(l.Pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == name })
}
