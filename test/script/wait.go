package script

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson/test/kit/await"
)

// wait waits until all conditions hold at once.
func (r *Run) wait(args []string) error {
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
	err := r.Awaits(args[0], limit, func(p *corev1.Pod) bool {
		return !slices.ContainsFunc(args[1:], func(cond string) bool { return !holds(p, cond) })
	})
	time.Sleep(calm)
	return err
}

// awaitNode waits until the node is ready.
func (r *Run) awaitNode(limit time.Duration) error {
	return poll(limit, "the node is not ready", func(ctx context.Context) (string, bool, error) {
		n, err := r.API.CoreV1().Nodes().Get(ctx, Node, metav1.GetOptions{})
		return fmt.Sprint(
				n.Status.Conditions,
			), slices.ContainsFunc(
				n.Status.Conditions,
				func(c corev1.NodeCondition) bool {
					return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
				},
			), err
	})
}

// awaitLease waits until the agent renews its lease once more.
func (r *Run) awaitLease(limit time.Duration) error {
	begin := time.Now().Truncate(time.Microsecond)
	return poll(limit, "the lease is not renewed", func(ctx context.Context) (string, bool, error) {
		l, err := r.API.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, Node, metav1.GetOptions{})
		return fmt.Sprint(l.Spec.RenewTime), l.Spec.RenewTime != nil && !l.Spec.RenewTime.Time.Before(begin), err
	})
}

// poll checks an object ten times a second until it is as it should be. An object that is not found may be created
// later; other errors end the wait.
func poll(limit time.Duration, not string, look func(context.Context) (saw string, ok bool, err error)) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), limit, fmt.Errorf("%s within %s", not, limit))
	defer cancel()
	var failed error
	err := await.Poll(ctx, 100*time.Millisecond, func() (string, bool) {
		saw, ok, err := look(context.Background())
		if err != nil && !apierrors.IsNotFound(err) {
			failed = err
		}
		return saw, failed != nil || err == nil && ok
	})
	return errors.Join(failed, err)
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
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses,
		p.Status.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}
