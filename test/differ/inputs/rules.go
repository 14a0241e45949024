package inputs

import (
	"regexp"
	"slices"
	"strings"
)

// Rule is a kind of difference that exists on purpose.
type Rule struct {
	Name     string
	Decision string // the number of its record in docs/decisions
	Holds    func(*Difference) bool
}

// rules are all differences on purpose.
var rules = []Rule{
	{
		Name:     "what only the API server may say of a pod is not taken from a manifest",
		Decision: "0115",
		Holds: func(d *Difference) bool {
			return d.Ours == "" && d.Theirs == "" && only(d.Changed, "pod .status.", "mirror .metadata.resourceVersion",
				"mirror .metadata.deletionTimestamp", "mirror .metadata.deletionGracePeriodSeconds",
				"mirror .metadata.finalizers",
				"pod .metadata.resourceVersion", "pod .metadata.deletionTimestamp",
				"pod .metadata.deletionGracePeriodSeconds",
				"pod .metadata.finalizers", "pod .metadata.ownerReferences",
				"pod .metadata.annotations.kubernetes.io/config.mirror")
		},
	},
	{
		Name:     "the UID of a manifest has to be usable as the name of a directory",
		Decision: "0116",
		Holds: func(d *Difference) bool {
			return d.Theirs == "" && strings.Contains(d.Ours, "invalid pod: metadata.uid: Invalid value: ")
		},
	},
	{
		Name:     "the stream of the log is split where a file asks for it",
		Decision: "0114",
		Holds: func(d *Difference) bool {
			return d.Ours == "" && d.Theirs == "" &&
				only(d.Changed, ".logging.options.text.splitStream: ", ".logging.options.json.splitStream: ")
		},
	},
	{
		Name:     "settings that cannot work are refused at the start",
		Decision: "0117",
		Holds: func(d *Difference) bool {
			return d.Theirs == "" && strings.HasPrefix(d.Ours, "invalid configuration") &&
				!slices.ContainsFunc(problems(d.Ours), func(p string) bool {
					return !strict.MatchString(p)
				})
		},
	},
}

// strict are the settings that upstream does not validate: it fails later on the node,
// or runs without their effect.
var strict = regexp.MustCompile(
	`(^|: |#)(--root-dir|--image-credential-provider-bin-dir|cgroupDriver|memoryManagerPolicy|cpuManagerPolicy|(http|file)CheckFrequency|` +
		`nodeStatus(Report|Update)Frequency|runtimeRequestTimeout|tlsCertFile|reservedMemory\[\d+\][.\w-]*|reservedSystemCPUs|healthzBindAddress|address|` +
		`configMapAndSecretChangeDetectionStrategy|evictionPressureTransitionPeriod|shutdownGracePeriodByPodPriority\[\d+\][.\w]*|` +
		`authorization.mode|logging.options.(text|json).splitStream|registerWithTaints\[\d+\].effect|cloud-provider|--node-labels): `)

// problems splits our error into the errors of single settings.
func problems(text string) []string {
	_, rest, _ := strings.Cut(text, ": ")
	if strings.HasPrefix(text, "invalid configuration,") {
		_, rest, _ = strings.Cut(text, ";   ")
	}
	return strings.Split(rest, ";   ")
}

// only reports whether all changes are at these places.
func only(changes []string, places ...string) bool {
	return len(changes) > 0 && !slices.ContainsFunc(changes, func(c string) bool {
		return !slices.ContainsFunc(places, func(p string) bool { return strings.HasPrefix(c, p) })
	})
}

// ruleFor is the rule behind a difference, nil when there is none.
func ruleFor(d *Difference) *Rule {
	for i := range rules {
		if rules[i].Holds(d) {
			return &rules[i]
		}
	}
	return nil
}
