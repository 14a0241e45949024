package differ

// drawDays draws what happens to the pod, in three acts.
func (d *draw) drawDays() {
	d.life.Acts = []Act{{Steps: []Step{{Verb: create}}}, {}, {}}
	for i := range d.life.Acts {
		a := &d.life.Acts[i]
		for range d.IntN(2) {
			a.Steps = append(a.Steps, d.step())
		}
	}
}

// step draws one step.
func (d *draw) step() Step {
	for {
		switch d.IntN(4) {
		case 0:
			if len(d.able.running) > 0 {
				return Step{Verb: exit, Container: pick(d, d.able.running), Code: int32(d.IntN(3))}
			}
		case 1:
			return Step{Verb: patch, Patch: raw(object{"metadata": object{"labels": object{"changed": d.of("a", "b")}}})}
		case 2:
			c := pick(d, d.pod.Spec.Containers)
			return Step{Verb: patch, Patch: raw(object{"spec": object{"containers": []object{{"name": c.Name, "image": d.of("app:2", "app:3")}}}})}
		case 3:
			if d.one(3) {
				return Step{Verb: remove, Grace: []int64{-1, 0, 1, 3}[d.IntN(4)]}
			}
		}
	}
}
