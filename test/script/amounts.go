package script

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// wholePod takes the place of a container's name for pod-level resources.
const wholePod = "-"

// resize changes the resources of a container, or the pod-level resources, as a user does.
func (r *Run) resize(args []string) error {
	pods := r.API.CoreV1().Pods(Namespace)
	p, err := pods.Get(context.Background(), args[0], metav1.GetOptions{})
	if err != nil {
		return err
	}
	var asks *corev1.ResourceRequirements
	if args[1] == wholePod {
		asks = p.Spec.Resources
	}
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			if list[i].Name == args[1] {
				asks = &list[i].Resources
			}
		}
	}
	if asks == nil {
		return fmt.Errorf("there is no container %s", args[1])
	}
	for _, a := range args[2:] {
		name, amount, _ := strings.Cut(a, "=")
		list := &asks.Requests
		if limit, ok := strings.CutPrefix(name, "limits."); ok {
			name, list = limit, &asks.Limits
		}
		q, err := resource.ParseQuantity(amount)
		if err != nil {
			return err
		}
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[corev1.ResourceName(name)] = q
	}
	_, err = pods.UpdateResize(context.Background(), p.Name, p, metav1.UpdateOptions{})
	return err
}

// label sets a label of the node.
func (r *Run) label(args []string) error {
	key, value, _ := strings.Cut(args[0], "=")
	n, err := r.API.CoreV1().Nodes().Get(context.Background(), Node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	n.Labels[key] = value
	_, err = r.API.CoreV1().Nodes().Update(context.Background(), n, metav1.UpdateOptions{})
	return err
}

// resources shows the allocated and the actual resources of a pod's containers, from the pod's
// status, and the conditions of its resizes.
func (r *Run) resources(args []string) (string, error) {
	p, err := r.API.CoreV1().Pods(Namespace).Get(context.Background(), args[0], metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		fmt.Fprintf(&b, "%s: granted %s", c.Name, amounts(c.AllocatedResources))
		if c.Resources != nil {
			fmt.Fprintf(&b, ", has %s limits %s", amounts(c.Resources.Requests), amounts(c.Resources.Limits))
		}
		b.WriteString("\n")
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress {
			fmt.Fprintf(&b, "is %s%s of generation %d\n", c.Type, text(c.Reason, c.Message), c.ObservedGeneration)
		}
	}
	if p.Status.ObservedGeneration != p.Generation {
		fmt.Fprintf(&b, "generation %d was seen, there is %d\n", p.Status.ObservedGeneration, p.Generation)
	}
	return r.plain(b.String()), nil
}

func amounts(l corev1.ResourceList) string {
	var out []string
	for name, q := range l {
		out = append(out, fmt.Sprintf("%s=%s", name, q.String()))
	}
	slices.Sort(out)
	return "[" + strings.Join(out, " ") + "]"
}
