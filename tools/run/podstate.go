package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// podState is what is shown of a pod.
type podState struct {
	Name     string // with its namespace, unless that is the default one
	UID      string
	IP       string
	Ready    bool
	Done     bool   // it has completed
	Counts   string // of its containers
	Restarts int32
	Started  time.Time
	Grace    time.Duration
	Troubles []trouble
}

// settled reports whether the pod is Ready or has completed.
func (s podState) settled() bool { return s.Ready || s.Done }

// podStates returns what is shown of the pods, ordered by name.
func podStates(pods []v1.Pod) []podState {
	var out []podState
	for i := range pods {
		out = append(out, podStateOf(&pods[i]))
	}
	slices.SortFunc(out, func(a, b podState) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// podStateOf reads a pod's status.
func podStateOf(p *v1.Pod) podState {
	s := podState{Name: shown(p), UID: string(p.UID), IP: p.Status.PodIP, Grace: 30 * time.Second}
	if g := p.Spec.TerminationGracePeriodSeconds; g != nil {
		s.Grace = time.Duration(*g) * time.Second
	}
	if t := p.Status.StartTime; t != nil {
		s.Started = t.Time
	}
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady {
			s.Ready = c.Status == v1.ConditionTrue
		}
	}
	s.Done = p.Status.Phase == v1.PodSucceeded
	ready, all := 0, 0
	for _, c := range lasting(p) {
		all++
		s.Restarts += c.RestartCount
		if c.Ready {
			ready++
		}
	}
	all = max(all, len(p.Spec.Containers)) // before there is a status
	s.Counts = fmt.Sprintf("%d/%d ready", ready, all)
	switch {
	case s.Done:
		s.Counts = "completed"
	case p.Status.Phase == v1.PodFailed:
		s.Counts = "failed"
	}
	if !s.settled() {
		s.Troubles = findTroubles(p)
	}
	return s
}

// lasting returns the statuses of the regular containers and the sidecars.
func lasting(p *v1.Pod) []v1.ContainerStatus {
	sidecar := map[string]bool{}
	for _, c := range p.Spec.InitContainers {
		sidecar[c.Name] = c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
	}
	out := slices.Clone(p.Status.ContainerStatuses)
	for _, c := range p.Status.InitContainerStatuses {
		if sidecar[c.Name] {
			out = append(out, c)
		}
	}
	return out
}

func shown(p *v1.Pod) string {
	if p.Namespace == v1.NamespaceDefault || p.Namespace == "" {
		return p.Name
	}
	return p.Namespace + "/" + p.Name
}

// table returns a table of the pods.
func table(pods []podState, now time.Time) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "NAME\tIP\tCONTAINERS\tRESTARTS\tAGE")
	for _, s := range pods {
		age := "-"
		if !s.Started.IsZero() {
			age = duration.HumanDuration(now.Sub(s.Started))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\n", s.Name, cmp.Or(s.IP, "-"), s.Counts, s.Restarts, age)
	}
	w.Flush() // a strings.Builder takes everything
	return b.String()
}
