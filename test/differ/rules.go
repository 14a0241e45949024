package differ

import (
	"regexp"
	"slices"
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
		Why: "containers without an order among them are stopped at the same time",
		is:  func(d Difference) bool { return d.Kind == "order" && stops.MatchString(d.Where) },
	},
	{
		Why: "containers that have ended are started again each in its own time",
		is:  func(d Difference) bool { return d.Kind == "order" && restarts(d) },
	},
	{
		Why: "upstream shows a container that ended as terminated until its next sync, and then as waiting for its back-off; ours at once as waiting",
		is: func(d Difference) bool {
			return d.Kind == "said" && d.Ours == absent && containerEnded.MatchString(d.Theirs)
		},
	},
	{
		Why: "ours notes in observedGeneration also changes of a pod that has ended, upstream's no more",
		is: func(d Difference) bool {
			return d.Kind == "pod" && strings.HasSuffix(d.Where, "observedGeneration") && d.Ours > d.Theirs && d.ended
		},
	},
	{
		Why: "on the way to running, statuses of any moment may be skipped",
		is: func(d Difference) bool {
			return d.Kind == "said" && (onTheWay.MatchString(d.Ours) || onTheWay.MatchString(d.Theirs))
		},
	},
}

var (
	podResources   = regexp.MustCompile(`^status\.resources(\.|$)`)
	containerEnded = regexp.MustCompile(`^container \S+: terminated `)
	later          = regexp.MustCompile(`^(?:Create|Start|Stop)Container (\S+)#(\d+).* and (?:Create|Start|Stop)Container (\S+)#(\d+)`)
	variable       = regexp.MustCompile(`^CreateContainer config\.envs\[([^\]]+)\]\.value`)
	stops          = regexp.MustCompile(`^StopContainer .* and StopContainer `)
	onTheWay       = regexp.MustCompile(`waiting (ContainerCreating|PodInitializing) |^phase: Pending  |with (unready|incomplete) status: `)
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
