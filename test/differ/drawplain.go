package differ

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// plainPod generates a pod of few features.
func (d *draw) plainPod() {
	s := &d.pod.Spec
	s.RestartPolicy = corev1.RestartPolicy(d.of("", "Always", "OnFailure", "Never"))
	s.TerminationGracePeriodSeconds = maybe(d, 2, int64(0), 1, 2, 5)
	if d.one(4) {
		s.Volumes = append(s.Volumes, d.plainVolumes()...)
	}
	for i := range d.IntN(3) {
		s.InitContainers = append(s.InitContainers, d.plainInit(fmt.Sprintf("init%d", i)))
	}
	for i := range 1 + d.IntN(2) {
		s.Containers = append(s.Containers, d.plainMain(fmt.Sprintf("main%d", i)))
	}
}

func (d *draw) plainVolumes() []corev1.Volume {
	return []corev1.Volume{{Name: "empty", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
}

func (d *draw) plainInit(name string) corev1.Container {
	c := d.plainContainer(name)
	d.life.Programs[name] = []string{"sleep 0.3; exit 0"}
	return c
}

func (d *draw) plainMain(name string) corev1.Container {
	c := d.plainContainer(name)
	d.life.Programs[name] = []string{forever}
	switch d.pod.Spec.RestartPolicy {
	case corev1.RestartPolicyNever:
		if d.one(2) {
			d.life.Programs[name] = []string{d.of("sleep 3; exit 0", "sleep 3; exit 3")}
			return c
		}
	case corev1.RestartPolicyOnFailure:
		if d.one(2) {
			d.life.Programs[name] = []string{"sleep 3; exit 3", "sleep 3; exit 0"}
			return c
		}
	default:
		if d.one(4) {
			d.life.Programs[name] = []string{"sleep 3; exit 3", forever}
		}
	}
	d.able.running = append(d.able.running, name)
	return c
}

func (d *draw) plainContainer(name string) corev1.Container {
	c := corev1.Container{Name: name, Image: "app:1"}
	for _, v := range d.pod.Spec.Volumes {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
	}
	return c
}

// plainDays generates the steps of a plain pod, in three acts.
func (d *draw) plainDays() {
	d.life.Acts = []Act{{Steps: []Step{{Verb: create}}}, {}, {}}
	for i := range d.life.Acts {
		a := &d.life.Acts[i]
		for range d.IntN(2) {
			a.Steps = append(a.Steps, d.plainStep())
		}
	}
}

// plainStep generates one step.
func (d *draw) plainStep() Step {
	for {
		switch d.IntN(4) {
		case 0:
			if len(d.able.running) > 0 {
				return Step{Verb: exit, Container: pick(d, d.able.running), Code: int32(d.IntN(3))}
			}
		case 1:
			return Step{
				Verb:  patch,
				Patch: raw(object{"metadata": object{"labels": object{"changed": d.of("a", "b")}}}),
			}
		case 2:
			c := pick(d, d.pod.Spec.Containers)
			return Step{
				Verb: patch,
				Patch: raw(object{"spec": object{"containers": []object{{
					"name":  c.Name,
					"image": d.of("app:2", "app:3"),
				}}}}),
			}
		case 3:
			if d.one(3) {
				return Step{Verb: remove, Grace: []int64{-1, 0, 1, 3}[d.IntN(4)]}
			}
		}
	}
}
