package differ

import corev1 "k8s.io/api/core/v1"

// drawDays generates the steps of the life, in three acts.
func (d *draw) drawDays() {
	d.life.Acts = []Act{{Steps: []Step{{Verb: create}}}, {}, {}}
	for i := range d.life.Acts {
		a := &d.life.Acts[i]
		for range d.IntN(3) {
			if s, ok := d.step(); ok {
				a.Steps = append(a.Steps, s)
			}
		}
		if s, ok := d.step(); ok && d.one(3) && i < 2 {
			a.Down = append(a.Down, s)
		}
	}
}

// step selects a step at random. It reports false if the pod does not allow the step.
func (d *draw) step() (Step, bool) {
	if d.life.Static && d.one(2) {
		return Step{}, false
	}
	meta := func(kind string) Step {
		return Step{Verb: patch, Patch: raw(object{"metadata": object{kind: object{"changed": d.of("a", "b", "c")}}})}
	}
	switch d.IntN(15) {
	case 0, 1:
		if len(d.able.running) > 0 {
			return Step{Verb: exit, Container: pick(d, d.able.running), Code: int32(d.IntN(5))}, true
		}
	case 2:
		if len(d.able.running) > 0 {
			return Step{Verb: oom, Container: pick(d, d.able.running)}, true
		}
	case 3, 4, 5:
		if len(d.able.probes) > 0 {
			return Step{Verb: d.of(sick, well), Container: pick(d, d.able.probes)}, true
		}
	case 6:
		return meta(d.of("labels", "annotations")), !d.life.Static
	case 7:
		c := pick(d, d.pod.Spec.Containers)
		image := d.of("app:2", "app:3")
		if c.ImagePullPolicy == corev1.PullAlways {
			image = "pulled/" + d.life.Name + "-" + c.Name + ":2"
		}
		return Step{
			Verb:  patch,
			Patch: raw(object{"spec": object{"containers": []object{{"name": c.Name, "image": image}}}}),
		}, !d.life.Static
	case 8:
		if d.one(2) {
			return Step{Verb: remove, Grace: []int64{-1, 0, 1, 3}[d.IntN(4)]}, true
		}
	case 9:
		return Step{Verb: killBox}, d.one(2)
	case 10:
		c := pick(d, d.pod.Spec.Containers)
		if len(c.Resources.Requests) == 0 {
			return Step{}, false
		}
		r := object{"requests": object{"cpu": d.of("4m", "6m")}}
		return Step{
			Verb:  resize,
			Patch: raw(object{"spec": object{"containers": []object{{"name": c.Name, "resources": r}}}}),
		}, !d.life.Static
	case 11:
		for _, o := range d.life.Objects {
			if d.one(2) {
				o.Data = map[string]string{
					"one":      "changed",
					"two":      "3",
					"user":     "you",
					"text":     "other",
					"password": "shown",
				}
				return Step{Verb: putObject, Object: &o}, true
			}
		}
	case 12:
		gates := d.pod.Spec.ReadinessGates
		if len(gates) > 0 {
			c := object{"type": gates[0].ConditionType, "status": d.of("True", "False"), "reason": "Drawn"}
			return Step{Verb: status, Patch: raw(object{"status": object{"conditions": []object{c}}})}, true
		}
		ready := object{"type": corev1.PodReady, "status": "False", "reason": "SomebodyElse"}
		return Step{
			Verb:  status,
			Patch: raw(object{"status": object{"conditions": []object{ready}}}),
		}, !d.life.Static && d.one(2)
	case 13:
		if !d.life.Static && !d.extra {
			d.extra = true
			d.life.Programs["extra"] = []string{forever}
			return Step{
				Verb: ephemeral,
				Patch: raw(object{"spec": object{"ephemeralContainers": []object{{
					"name":  "extra",
					"image": "app:1",
				}}}}),
			}, true
		}
	case 14:
		return Step{Verb: evict, Grace: []int64{-1, 1, 3}[d.IntN(3)]}, !d.life.Static && d.one(3)
	}
	return Step{}, false
}
