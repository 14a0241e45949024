package differ

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestRuleForAmountsOfInitContainers(t *testing.T) {
	amount := func(container string) corev1.EnvVar {
		return corev1.EnvVar{
			Name:      "MEMORY",
			ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: container, Resource: "limits.memory"}},
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
		d := Difference{Kind: "request", Where: tc.where, Ours: "24", Theirs: tc.theirs, Life: &Life{Pod: p}, scene: &scene{}}
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

// TestRuleForARuntimeThatIsAway looks at what is shown of a call that found no runtime.
func TestRuleForARuntimeThatIsAway(t *testing.T) {
	const away = `container main: waiting ImageInspectError "Failed to inspect image \"app:1\": rpc error: code = Unavailable desc = `
	for _, tc := range []struct {
		what, kind, text, between string
		ruled                     bool
	}{
		{"a status", "said", away, restartRuntime, true},
		{"a status while the runtime ran", "said", away, restartAgent, false},
		{"a status at rest", "pod", away, restartRuntime, false},
		{"another status", "said", "container main: running", restartRuntime, false},
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

// TestRuleForTheLastStateOfAnInitContainer looks at one whose first sandbox was lost.
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
