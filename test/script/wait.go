package script

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// wait waits until all conditions hold at once.
func (r *run) wait(args []string) error {
	limit := waitLimit
	if last := args[len(args)-1]; strings.HasPrefix(last, "within=") {
		d, err := seconds(strings.TrimPrefix(last, "within="))
		if err != nil {
			return err
		}
		limit, args = d, args[:len(args)-1]
	}
	switch args[0] {
	case "node":
		return r.awaitNode(limit)
	case "lease":
		return r.awaitLease(limit)
	}
	err := r.awaits(args[0], limit, func(p *corev1.Pod) bool {
		return !slices.ContainsFunc(args[1:], func(cond string) bool { return !holds(p, cond) })
	})
	time.Sleep(calm)
	return err
}

// awaitNode waits until the node is ready.
func (r *run) awaitNode(limit time.Duration) error {
	for end := time.Now().Add(limit); ; time.Sleep(100 * time.Millisecond) {
		n, err := r.api.CoreV1().Nodes().Get(context.Background(), node, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		if time.Now().After(end) {
			return fmt.Errorf("the node is not ready within %s: %v", limit, n.Status.Conditions)
		}
	}
}

// awaitLease waits until the agent renews its lease once more.
func (r *run) awaitLease(limit time.Duration) error {
	begin := time.Now()
	for {
		l, err := r.api.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(context.Background(), node, metav1.GetOptions{})
		switch {
		case err != nil && !apierrors.IsNotFound(err):
			return err
		case err == nil && l.Spec.RenewTime != nil && !l.Spec.RenewTime.Time.Before(begin.Truncate(time.Microsecond)):
			return nil
		case time.Since(begin) > limit:
			return fmt.Errorf("the lease is not renewed within %s: %v", limit, l.Spec.RenewTime)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func holds(p *corev1.Pod, cond string) bool {
	if p == nil || cond == "gone" {
		return p == nil && cond == "gone"
	}
	if name, want, ok := strings.Cut(cond, "="); ok {
		c := containerStatus(p, name)
		return c != nil && slices.Contains(strings.Fields(state(c.State)), want)
	}
	if name, want, ok := strings.Cut(cond, "#"); ok {
		c := containerStatus(p, name)
		return c != nil && strconv.Itoa(int(c.RestartCount)) == want && c.State.Running != nil
	}
	switch cond {
	case "Ready", "NotReady":
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady {
				return (c.Status == corev1.ConditionTrue) == (cond == "Ready")
			}
		}
		return false
	}
	return string(p.Status.Phase) == cond
}

func containerStatus(p *corev1.Pod, name string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}
