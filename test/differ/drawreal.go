package differ

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// realPod generates a pod for containerd. Its images are present and have a shell.
func (d *draw) realPod() {
	s := &d.pod.Spec
	d.life.Static = d.one(12)
	s.RestartPolicy = corev1.RestartPolicy(d.of("", "Always", "OnFailure", "Never"))
	s.TerminationGracePeriodSeconds = maybe(d, 2, int64(2), 3, 5)
	d.pod.Labels = map[string]string{"app": d.of("a", "b")}
	d.pod.Annotations = map[string]string{"note": "line 1\nline 2"}
	if !d.life.Static {
		d.objects()
		s.AutomountServiceAccountToken = maybe(d, 3, false)
	}
	d.drawNode()
	s.HostPID, s.HostIPC = false, false // a killed program's children would continue, and pods would share codeFile
	s.Volumes = d.volumes()
	for _, v := range s.Volumes {
		if v.HostPath != nil {
			v.HostPath.Type = maybe(d, 2, corev1.HostPathDirectory) // others would not be mounted at all
		}
	}
	for i := range d.IntN(3) {
		s.InitContainers = append(s.InitContainers, d.realInit(fmt.Sprintf("init%d", i)))
	}
	for i := range 1 + d.IntN(2) {
		s.Containers = append(s.Containers, d.realMain(fmt.Sprintf("main%d", i)))
	}
}

func (d *draw) realInit(name string) corev1.Container {
	c := d.realContainer(name)
	d.life.Programs[name] = []string{d.of("sleep 0.3; exit 0", "exit 0")}
	switch {
	case d.one(4):
		c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		d.life.Programs[name] = []string{forever}
		d.realProbes(&c)
		d.realHooks(&c)
		d.able.running = append(d.able.running, name)
	case d.one(6):
		d.life.Programs[name] = []string{"sleep 0.3; exit 4", "sleep 0.3; exit 0"}
	}
	return c
}

func (d *draw) realMain(name string) corev1.Container {
	c := d.realContainer(name)
	d.realProbes(&c)
	d.realHooks(&c)
	d.life.Programs[name] = []string{d.of(forever, forever, "trap 'exit 0' TERM; "+forever, "trap '' TERM; "+forever)}
	end := d.of("", "echo words; ", "echo last >/dev/termination-log; ") + "sleep 6; exit "
	ends := false
	switch d.pod.Spec.RestartPolicy {
	case corev1.RestartPolicyNever:
		if ends = d.one(2); ends {
			d.life.Programs[name] = []string{end + d.of("0", "3")}
		}
	case corev1.RestartPolicyOnFailure:
		if ends = d.one(2); ends {
			d.life.Programs[name] = []string{end + "3", end + "0"}
		}
	default:
		if d.one(4) {
			d.life.Programs[name] = []string{end + d.of("0", "3")}
		}
	}
	d.ownPolicy(&c)
	if !ends {
		d.able.running = append(d.able.running, name)
	}
	// The last program runs for ever, so that no container crashes endlessly.
	d.life.Programs[name] = append(d.life.Programs[name], forever)
	return c
}

func (d *draw) realContainer(name string) corev1.Container {
	c := corev1.Container{
		Name:                     name,
		Image:                    d.of(present...),
		WorkingDir:               d.of("", "", "", "/work"),
		TerminationMessagePolicy: corev1.TerminationMessagePolicy(d.of("", "File", "FallbackToLogsOnError")),
	}
	c.Env, c.EnvFrom = d.env(name)
	if d.one(2) {
		c.Resources.Requests = corev1.ResourceList{"cpu": quantity(d.of("1m", "5m")), "memory": quantity("8Mi")}
		if d.one(2) { // less would make it too slow
			c.Resources.Limits = corev1.ResourceList{"cpu": quantity("500m"), "memory": quantity("64Mi")}
		}
	}
	d.realMounts(&c)
	if d.one(4) {
		c.SecurityContext = &corev1.SecurityContext{
			RunAsUser:                maybe(d, 6, int64(1001)),
			ReadOnlyRootFilesystem:   maybe(d, 2, true),
			AllowPrivilegeEscalation: maybe(d, 3, false),
			SeccompProfile:           maybe(d, 4, corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}),
		}
		if d.one(3) {
			c.SecurityContext.Capabilities = &corev1.Capabilities{
				Add:  []corev1.Capability{"NET_ADMIN"},
				Drop: []corev1.Capability{"ALL"},
			}
		}
	}
	return c
}

// realMounts mounts most volumes, some of them in others, where a mount point can be created.
func (d *draw) realMounts(c *corev1.Container) {
	at := ""
	for _, v := range d.pod.Spec.Volumes {
		if d.one(5) {
			continue
		}
		m := corev1.VolumeMount{Name: v.Name, MountPath: at + "/" + v.Name, ReadOnly: d.one(4) || v.HostPath != nil}
		switch {
		case v.EmptyDir != nil && d.one(4):
			m.SubPath = d.of("sub", "sub/deep")
		case at == "" && d.one(5):
			m.SubPath = d.subPathOf(v)
		}
		if m.ReadOnly && d.one(3) {
			m.RecursiveReadOnly = new(corev1.RecursiveReadOnlyIfPossible)
		}
		writable := v.EmptyDir != nil && !m.ReadOnly
		made := v.EmptyDir == nil && v.HostPath == nil && m.SubPath == "" // by the agent, in the volume
		if (writable || made) && d.one(3) {
			at = m.MountPath
		}
		c.VolumeMounts = append(c.VolumeMounts, m)
	}
}

// realProbes generates probes. The stage answers most of them; the others run in the container and fail.
func (d *draw) realProbes(c *corev1.Container) {
	probe := func(kind string) *corev1.Probe {
		if !d.one(4) {
			return nil
		}
		d.able.probes = append(d.able.probes, c.Name+"/"+kind)
		return &corev1.Probe{
			ProbeHandler:     corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"probe", kind}}},
			PeriodSeconds:    1,
			FailureThreshold: int32(1 + d.IntN(2)),
			TimeoutSeconds:   1,
		}
	}
	c.ReadinessProbe, c.LivenessProbe, c.StartupProbe = probe("readiness"), probe("liveness"), probe("startup")
	if c.ReadinessProbe != nil || !d.one(8) {
		return
	}
	c.ReadinessProbe = &corev1.Probe{
		ProbeHandler:     corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: pick(d, failing)}},
		PeriodSeconds:    10,
		FailureThreshold: 1,
		TimeoutSeconds:   2,
	}
}

// failing are the commands of probes that run in the container. They fail.
var failing = [][]string{{"cat", "/nowhere"}, {"/nowhere"}, {"sleep", "20"}}

// isProbe reports whether a command is that of a probe.
func isProbe(command []string) bool {
	return len(command) > 0 && command[0] == "probe" ||
		slices.ContainsFunc(failing, func(f []string) bool { return slices.Equal(f, command) })
}

// realHooks generates hooks that run in the container.
func (d *draw) realHooks(c *corev1.Container) {
	if !d.one(5) {
		return
	}
	run := func(command ...string) *corev1.LifecycleHandler {
		return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: command}}
	}
	if d.one(3) {
		c.Lifecycle = &corev1.Lifecycle{PostStart: run("sleep", "0.5")}
		return
	}
	c.Lifecycle = &corev1.Lifecycle{PreStop: pick(d, []*corev1.LifecycleHandler{
		run("sleep", "1"), run("sh", "-c", "echo hooked; exit 1"), run("/nowhere"),
		{Sleep: &corev1.SleepAction{Seconds: 1}},
	})}
}

// realDays generates the steps of a pod on containerd, in three acts.
func (d *draw) realDays() {
	d.drawDays()
	unable := func(s Step) bool { return s.Verb == oom }
	for i := range d.life.Acts {
		a := &d.life.Acts[i]
		a.Steps, a.Down = slices.DeleteFunc(a.Steps, unable), slices.DeleteFunc(a.Down, unable)
	}
	if d.one(12) {
		d.createLate()
	} else {
		d.late()
	}
}
