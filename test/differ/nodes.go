package differ

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
)

// drawnTaint is the taint of the interlude.
var drawnTaint = corev1.Taint{Key: "example.com/drawn", Value: "yes", Effect: corev1.TaintEffectNoExecute}

// changeNode changes the side's node in the cluster.
func (s *side) changeNode(ctx context.Context, change func(*corev1.Node)) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		n, err := s.client.CoreV1().Nodes().Get(ctx, s.node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(n)
		_, err = s.client.CoreV1().Nodes().Update(ctx, n, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("change node %s: %w", s.node, err)
	}
	return nil
}

// setTaint adds the taint of the interlude to the node or removes it.
func (s *side) setTaint(ctx context.Context, on bool) error {
	return s.changeNode(ctx, func(n *corev1.Node) {
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == drawnTaint.Key })
		if on {
			n.Spec.Taints = append(n.Spec.Taints, drawnTaint)
		}
	})
}

func (s *side) cordon(ctx context.Context, on bool) error {
	return s.changeNode(ctx, func(n *corev1.Node) { n.Spec.Unschedulable = on })
}

// untilLost waits until the node controller has marked the side's node as unreachable.
func (s *side) untilLost(ctx context.Context) error {
	late := fmt.Errorf("node %s is not marked unreachable within 3 min", s.node)
	ctx, cancel := context.WithTimeoutCause(ctx, 3*time.Minute, late)
	defer cancel()
	_, err := s.rig.Cluster.UntilNode(ctx, s.node, func(n *corev1.Node) bool {
		return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown
		})
	})
	return err
}

// untilUnready waits until the pod of a life is not Ready on either side, which the node controller
// sets for pods of unreachable nodes.
func (p *play) untilUnready(ctx context.Context, l *Life) error {
	_, err := p.wait(ctx, l, time.Minute, func() time.Duration {
		for _, s := range p.sides {
			pod := s.record.track(l.Name).there()
			if pod != nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			}) {
				return time.Second
			}
		}
		return 0
	})
	return err
}

// untilEvicted waits until the pod of a life is deleted on both sides, if it does not tolerate the
// taint for long, and compares.
func (p *play) untilEvicted(ctx context.Context, l *Life, at string) error {
	stays := l.Static || slices.ContainsFunc(l.Pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		return t.Key == drawnTaint.Key && (t.TolerationSeconds == nil || *t.TolerationSeconds > 60)
	})
	if !stays && !p.isRefused(l) {
		_, err := p.wait(ctx, l, time.Minute, func() time.Duration {
			for _, s := range p.sides {
				if s.record.track(l.Name).there() != nil {
					return time.Second
				}
			}
			return 0
		})
		if err != nil {
			return err
		}
	}
	return p.rest(ctx, l, at)
}
