package differ

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// drawPod draws the pod.
func (d *draw) drawPod() {
	s := &d.pod.Spec
	s.RestartPolicy = corev1.RestartPolicy(d.of("", "Always", "OnFailure", "Never"))
	s.TerminationGracePeriodSeconds = maybe(d, 2, int64(0), 1, 2, 5)
	if d.one(4) {
		s.Volumes = append(s.Volumes, d.volumes()...)
	}
	for i := range d.IntN(3) {
		s.InitContainers = append(s.InitContainers, d.initContainer(fmt.Sprintf("init%d", i)))
	}
	for i := range 1 + d.IntN(2) {
		s.Containers = append(s.Containers, d.mainContainer(fmt.Sprintf("main%d", i)))
	}
}

func (d *draw) volumes() []corev1.Volume {
	return []corev1.Volume{{Name: "empty", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
}

func (d *draw) initContainer(name string) corev1.Container {
	c := d.container(name)
	d.life.Programs[name] = []string{"sleep 0.3; exit 0"}
	return c
}

func (d *draw) mainContainer(name string) corev1.Container {
	c := d.container(name)
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

func (d *draw) container(name string) corev1.Container {
	c := corev1.Container{Name: name, Image: "app:1"}
	for _, v := range d.pod.Spec.Volumes {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
	}
	return c
}
