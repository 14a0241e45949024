package differ

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podKind is the kind of pods of a history.
type podKind int

const (
	allPods   podKind = iota // of all features
	plainPods                // of few features
	realPods                 // of features that work on containerd
)

// Draw generates a history of n lives from a seed. The same seed gives the same history, and its
// lives do not depend on n.
func Draw(seed uint64, n int, kind podKind) *History {
	h := &History{Seed: seed}
	d := &draw{Rand: rand.New(rand.NewPCG(seed, 1<<32))}
	interludes := []string{nothing, restartAgent, killAgent, freezeAgent, restartRuntime, loseEvents,
		taintNode, cordonNode, cutOff, cutOffLong, pressNode}
	if kind == realPods {
		interludes = slices.DeleteFunc(interludes, func(k string) bool { return k == loseEvents })
	}
	for range 2 {
		h.Between = append(h.Between, d.of(interludes...))
	}
	for i := range n {
		h.Lives = append(h.Lives, drawLife(seed, i, kind))
	}
	return h
}

// draw is a life that is being generated.
type draw struct {
	*rand.Rand
	number int // of the life in its history
	life   *Life
	pod    *corev1.Pod
	able   able

	extra bool // it gets an ephemeral container
}

// able is what steps can do with the generated pod.
type able struct {
	ports   []int32  // that containers listen on
	running []string // containers that run until they are ended
	probes  []string // container/kind
	config  string   // names of its ConfigMap and Secret, if it has them
	secret  string
}

func drawLife(seed uint64, i int, kind podKind) *Life {
	d := &draw{Rand: rand.New(rand.NewPCG(seed, uint64(i))), number: i}
	d.life = &Life{Name: fmt.Sprintf("h%d-%d", seed, i), Programs: map[string][]string{}}
	d.pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: d.life.Name}}
	d.life.Pod = d.pod
	switch kind {
	case plainPods:
		d.plainPod()
		d.plainDays()
		return d.life
	case realPods:
		d.realPod()
		d.realDays()
		d.sameInEachSandbox()
		d.endInTurn()
		return d.life
	}
	d.drawPod()
	d.drawDays()
	deadline := d.pod.Spec.ActiveDeadlineSeconds
	short := deadline != nil && *deadline < 60
	switch {
	case d.one(12):
		d.createLate()
	case !short:
		d.late()
	}
	for _, f := range d.life.Faults {
		if f.Method == "StartContainer" {
			// Upstream's agent counts a failed start as an attempt, so the program must not depend on the attempt.
			d.life.alwaysTheSame(f.Container)
		}
	}
	d.sameInEachSandbox()
	if short {
		// Whether the deadline, the end of a container or the next step comes first would be random.
		for _, c := range containers(d.pod) {
			if programs := d.life.Programs[c.Name]; strings.HasSuffix(programs[len(programs)-1], forever) {
				d.life.Programs[c.Name] = []string{forever}
			}
		}
		for _, c := range d.pod.Spec.Containers {
			d.life.Programs[c.Name] = []string{forever}
		}
		d.life.Faults = nil
		if !d.life.late() {
			d.life.Acts[0].Steps = d.life.Acts[0].Steps[:1]
		}
	}
	d.endInTurn()
	return d.life
}

// createLate makes the pod be created during the first interlude, for example while the agent is down.
func (d *draw) createLate() {
	d.life.Acts[0] = Act{Down: d.life.Acts[0].Steps[:1]}
}

// sameInEachSandbox gives init containers the same program for all attempts if the sandbox dies in the life:
// upstream's agent begins their attempt numbers at 0 in a new sandbox.
func (d *draw) sameInEachSandbox() {
	if len(d.life.steps(killBox)) == 0 {
		return
	}
	for _, c := range d.pod.Spec.InitContainers {
		d.life.alwaysTheSame(c.Name)
	}
}

// endInTurn makes containers that end by themselves end at different times. Otherwise it would be random
// which end is seen first.
func (d *draw) endInTurn() {
	for i, c := range containers(d.pod) {
		for n, program := range d.life.Programs[c.Name] {
			d.life.Programs[c.Name][n] = strings.Replace(program, "sleep 6;", fmt.Sprintf("sleep %d;", 6+2*i), 1)
		}
	}
}

// one is true with a probability of 1/n.
func (d *draw) one(n int) bool { return d.IntN(n) == 0 }

func (d *draw) of(words ...string) string { return words[d.IntN(len(words))] }

// pick is an element of a list that is not empty.
func pick[T any](d *draw, list []T) T { return list[d.IntN(len(list))] }

// maybe is a pointer to one of the values with a probability of 1/n, and nil otherwise.
func maybe[T any](d *draw, n int, values ...T) *T {
	if !d.one(n) {
		return nil
	}
	return new(pick(d, values))
}

// raw is JSON for a patch.
func raw(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // v consists of maps
	}
	return data
}

type object = map[string]any

func quantity(text string) resource.Quantity { return resource.MustParse(text) }
