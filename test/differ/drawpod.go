package differ

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// drawPod generates the pod.
func (d *draw) drawPod() {
	s := &d.pod.Spec
	d.life.Static = d.one(12)
	s.RestartPolicy = corev1.RestartPolicy(d.of("", "Always", "OnFailure", "Never"))
	s.TerminationGracePeriodSeconds = maybe(d, 2, int64(2), 3, 5)
	s.ActiveDeadlineSeconds = maybe(d, 25, int64(8), 3600)
	d.pod.Labels = map[string]string{"app": d.of("a", "b")}
	d.pod.Annotations = map[string]string{"note": "line 1\nline 2"}
	if !d.life.Static {
		d.objects()
		s.AutomountServiceAccountToken = maybe(d, 3, false)
	}
	d.drawNode()
	d.drawWhole()
	s.Volumes = append(s.Volumes, d.volumes()...)
	for i := range d.IntN(3) {
		c := d.initContainer(fmt.Sprintf("init%d", i))
		s.InitContainers = append(s.InitContainers, c)
	}
	for i := range 1 + d.IntN(2) {
		s.Containers = append(s.Containers, d.mainContainer(fmt.Sprintf("main%d", i)))
	}
	d.drawFaults()
}

// objects generates the objects that the pod refers to.
func (d *draw) objects() {
	if d.one(2) {
		return
	}
	d.able.config, d.able.secret = d.life.Name+"-config", d.life.Name+"-secret"
	d.life.Objects = []Object{
		{
			Name: d.able.config,
			Data: map[string]string{"one": "1", "two": "2 $(HOME)", "bad-name!": "x", "text": "some\nlines\n"},
		},
		{
			Name:   d.able.secret,
			Secret: true,
			Data:   map[string]string{"user": "me", "password": "hidden"},
			Type:   corev1.SecretTypeOpaque,
		},
	}
	for i := range d.life.Objects {
		delete(d.life.Objects[i].Data, "bad-name!") // not a key
	}
}

// drawNode generates the fields of the pod that concern the node, its namespaces and the security context.
func (d *draw) drawNode() {
	s := &d.pod.Spec
	s.HostNetwork = d.one(10)
	s.HostPID, s.HostIPC = d.one(25), d.one(25)
	if !s.HostPID {
		s.ShareProcessNamespace = maybe(d, 15, true, false)
	}
	s.EnableServiceLinks = maybe(d, 4, true, false)
	s.DNSPolicy = corev1.DNSPolicy(d.of("", "", "Default", "ClusterFirst", "ClusterFirstWithHostNet", "None"))
	if s.DNSPolicy == corev1.DNSNone || d.one(6) {
		s.DNSConfig = &corev1.PodDNSConfig{
			Nameservers: []string{"192.0.2.1"}, Searches: []string{"example.com"},
			Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: new("3")}, {Name: "edns0"}},
		}
	}
	// A mirror pod that does not tolerate the taint without a time limit would be deleted again and again.
	if !d.one(3) && !d.life.Static {
		s.Tolerations = []corev1.Toleration{{
			Key: drawnTaint.Key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
			TolerationSeconds: maybe(d, 2, int64(2), 3600),
		}}
	}
	if d.one(6) {
		s.HostAliases = []corev1.HostAlias{{IP: "192.0.2.7", Hostnames: []string{"foo", "bar.example"}}}
	}
	if d.one(6) && !s.HostNetwork {
		s.Hostname, s.Subdomain = d.of("", "own"), d.of("", "sub")
		s.SetHostnameAsFQDN = maybe(d, 3, true)
	}
	if d.one(8) {
		s.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/gate"}}
	}
	if d.one(3) {
		s.SecurityContext = &corev1.PodSecurityContext{
			RunAsUser: maybe(d, 3, int64(0), 1000), RunAsGroup: maybe(d, 4, int64(2000)),
			RunAsNonRoot:        maybe(d, 5, true, false),
			FSGroup:             maybe(d, 3, int64(3000)),
			FSGroupChangePolicy: maybe(d, 4, corev1.FSGroupChangeAlways, corev1.FSGroupChangeOnRootMismatch),
			SeccompProfile:      maybe(d, 4, corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}),
			SupplementalGroupsPolicy: maybe(d, 6, corev1.SupplementalGroupsPolicyStrict,
				corev1.SupplementalGroupsPolicyMerge),
		}
		if d.one(4) {
			s.SecurityContext.SupplementalGroups = []int64{5, 4000}
		}
		if d.one(6) && !s.HostNetwork && !s.HostIPC { // the API server refuses those of the host
			s.SecurityContext.Sysctls = []corev1.Sysctl{{
				Name:  d.of("net.ipv4.ip_unprivileged_port_start", "net.ipv4.tcp_syncookies", "kernel.msgmax"),
				Value: "1",
			}}
		}
	}
}

// drawFaults generates calls to the runtime that fail or take long. Which of several containers meets a
// fault must not be random.
func (d *draw) drawFaults() {
	if d.one(25) {
		// Not PullImage: upstream's agent pulls one image at a time, for all pods.
		d.life.Faults = append(d.life.Faults, Fault{
			Method: d.of("RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "StopPodSandbox"),
			Times:  1, DelayMS: 8000 + d.IntN(12000),
		})
		return
	}
	if !d.one(5) {
		return
	}
	f := Fault{
		Method: d.of("RunPodSandbox", "CreateContainer", "StartContainer", "PullImage", "StopContainer",
			"StopPodSandbox"),
		Times: 1 + d.IntN(2),
	}
	c := pick(d, slices.Concat(d.pod.Spec.InitContainers, d.pod.Spec.Containers))
	switch f.Method {
	case "RunPodSandbox":
		f.Skip = d.IntN(2)
	case "CreateContainer", "StartContainer":
		f.Skip, f.Container = d.IntN(2), c.Name
	case "PullImage":
		if !strings.HasPrefix(c.Image, "pulled/") {
			return
		}
		f.Image = c.Image
	case "StopContainer":
		f.Container = c.Name
	}
	if d.one(3) {
		f.DelayMS = 300 + d.IntN(2000)
	} else {
		f.Message = d.of("the disk is full", "rpc: something went wrong\nin two lines", "failed to \"quote\"")
	}
	d.life.Faults = append(d.life.Faults, f)
}

func (d *draw) initContainer(name string) corev1.Container {
	c := d.container(name)
	d.life.Programs[name] = []string{"sleep 0.3; exit 0"}
	switch {
	case d.one(4):
		c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		d.life.Programs[name] = []string{forever}
		if d.one(4) {
			d.life.Programs[name] = []string{d.of("sleep 6; oom", "sleep 6; exit 5"), forever}
		}
		d.probes(&c)
		d.hooks(&c)
		d.able.running = append(d.able.running, name)
	case d.one(6):
		d.life.Programs[name] = []string{d.of("sleep 0.3; exit 4", "sleep 0.3; oom"), "sleep 0.3; exit 0"}
	}
	return c
}

func (d *draw) mainContainer(name string) corev1.Container {
	c := d.container(name)
	d.probes(&c)
	d.hooks(&c)
	d.life.Programs[name] = []string{d.of(forever, forever, "trap 'exit 0' TERM; "+forever, "trap '' TERM; "+forever)}
	ends := false
	switch d.pod.Spec.RestartPolicy {
	case corev1.RestartPolicyNever:
		if ends = d.one(2); ends {
			d.life.Programs[name] = []string{d.of("sleep 6; exit 0", "sleep 6; exit 3", "sleep 6; oom")}
		}
	case corev1.RestartPolicyOnFailure:
		if ends = d.one(2); ends {
			d.life.Programs[name] = []string{"sleep 6; exit 3", "sleep 6; exit 0"}
		}
	default:
		if d.one(4) {
			d.life.Programs[name] = []string{d.of("sleep 6; exit 3", "sleep 6; exit 0", "sleep 6; oom"), forever}
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

// ownPolicy generates a restart policy or restart rules of the container's own.
func (d *draw) ownPolicy(c *corev1.Container) {
	if !d.one(8) {
		return
	}
	c.RestartPolicy = new(corev1.ContainerRestartPolicy(d.of("Always", "OnFailure", "Never")))
	if !d.one(2) {
		return
	}
	c.RestartPolicyRules = []corev1.ContainerRestartRule{{
		Action: corev1.ContainerRestartRuleActionRestart,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{
			Operator: corev1.ContainerRestartRuleOnExitCodesOpIn,
			Values:   []int32{3},
		},
	}}
	c.RestartPolicy = new(corev1.ContainerRestartPolicyNever)
	if d.one(2) {
		c.RestartPolicyRules[0].Action = corev1.ContainerRestartRuleActionRestartAllContainers
	}
}

// probes generates probes whose results depend on the steps of the life.
func (d *draw) probes(c *corev1.Container) {
	probe := func(kind string) *corev1.Probe {
		if !d.one(4) {
			return nil
		}
		p := &corev1.Probe{
			ProbeHandler:        d.prober(c.Name + "/" + kind),
			InitialDelaySeconds: int32(d.IntN(2)), PeriodSeconds: 1, FailureThreshold: int32(1 + d.IntN(2)),
			TimeoutSeconds: 1,
		}
		if p.TCPSocket == nil {
			d.able.probes = append(d.able.probes, c.Name+"/"+kind)
		}
		if p.Exec == nil {
			p.TimeoutSeconds = 5 // each takes a connection, on a machine that may be busy
		}
		return p
	}
	c.ReadinessProbe, c.LivenessProbe, c.StartupProbe = probe("readiness"), probe("liveness"), probe("startup")
}

// hooks generates hooks. No command takes exactly as long as a generated grace period.
func (d *draw) hooks(c *corev1.Container) {
	hook := func() *corev1.LifecycleHandler {
		switch {
		case d.one(3):
			return &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 1}}
		case d.one(4) && !d.pod.Spec.HostNetwork:
			return webHook(d.of("/hook/0", "/hook/1"))
		}
		return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"hook", d.of("0", "0", "1"),
			d.of("0s", "500ms", "4s")}}}
	}
	if d.one(5) {
		c.Lifecycle = &corev1.Lifecycle{}
		switch {
		case d.one(2):
			c.Lifecycle.PreStop = hook()
		case d.one(3) && !d.pod.Spec.HostNetwork:
			c.Lifecycle.PostStart = webHook("/hook/0")
		default:
			c.Lifecycle.PostStart = &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"hook", "0",
				"500ms"}}}
		}
	}
}

func webHook(path string) *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(httpPort)}}
}

// prober generates the handler of a probe. The stage answers probes that go to the pod's address.
func (d *draw) prober(probe string) corev1.ProbeHandler {
	n := 8
	if d.pod.Spec.HostNetwork {
		n = 4 // its address is the node's
	}
	switch d.IntN(n) {
	case 4, 5:
		get := &corev1.HTTPGetAction{Path: "/" + probe, Port: intstr.FromInt32(httpPort)}
		if d.one(3) {
			get.Path += "?own"
			get.HTTPHeaders = []corev1.HTTPHeader{{Name: "X-Own", Value: "drawn"}, {Name: "Host", Value: "own.example"}}
		}
		return corev1.ProbeHandler{HTTPGet: get}
	case 6:
		return corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(httpPort)}}
	case 7:
		return corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: grpcPort, Service: new(probe)}}
	}
	_, kind, _ := strings.Cut(probe, "/")
	return corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"probe", kind}}}
}

func (d *draw) container(name string) corev1.Container {
	c := corev1.Container{
		Name: name, Image: d.of("app:1", "app:1", "app:2", rootless, "pulled/"+d.life.Name+"-"+name+":1"),
		ImagePullPolicy:          corev1.PullPolicy(d.of("", "", "IfNotPresent", "Always", "Never")),
		WorkingDir:               d.of("", "", "/work"),
		Stdin:                    d.one(10),
		TTY:                      d.one(10),
		TerminationMessagePath:   d.of("", "", "/dev/other-log"),
		TerminationMessagePolicy: corev1.TerminationMessagePolicy(d.of("", "File", "FallbackToLogsOnError")),
	}
	if c.ImagePullPolicy == corev1.PullAlways {
		// An image that another pod is pulling is pulled again, with any pull policy. Which pods pull
		// the same image at the same time would be random.
		c.Image = "pulled/" + d.life.Name + "-" + name + ":1"
	}
	if c.ImagePullPolicy == corev1.PullNever {
		c.Image = d.of("app:1", "app:2", "app:3", "missing/"+d.life.Name+"-"+name)
	}
	if d.one(2) {
		c.Command, c.Args = []string{"run", "$(ONE)", "$$(ONE)", "$(NONE)"}, []string{"$(POD_NAME)"}
	}
	if d.one(4) {
		// On the host's network no two pods may use the same port.
		port := 10000 + int32(d.number*20+len(d.able.ports))
		d.able.ports = append(d.able.ports, port)
		c.Ports = []corev1.ContainerPort{{
			Name:          "web-" + name,
			ContainerPort: port,
		}, {ContainerPort: port + 10000, Protocol: corev1.ProtocolUDP}}
		if d.one(4) {
			c.Ports[0].HostPort = port
		}
	}
	c.Env, c.EnvFrom = d.env(name)
	if c.Env != nil {
		c.Env = append(c.Env, d.fileVariable()...)
	}
	c.Resources = d.resources()
	d.hugePages(&c.Resources)
	d.mounts(&c)
	if d.one(3) {
		c.SecurityContext = &corev1.SecurityContext{
			RunAsUser: maybe(d, 4, int64(0), 1001), RunAsNonRoot: maybe(d, 6, true),
			ReadOnlyRootFilesystem:   maybe(d, 3, true),
			AllowPrivilegeEscalation: maybe(d, 3, false), ProcMount: maybe(d, 8, corev1.DefaultProcMount),
			SeccompProfile: maybe(d, 4, corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}),
		}
		if d.one(3) {
			c.SecurityContext.Capabilities = &corev1.Capabilities{
				Add:  []corev1.Capability{"NET_ADMIN"},
				Drop: []corev1.Capability{"ALL"},
			}
		} else if c.SecurityContext.AllowPrivilegeEscalation == nil {
			c.SecurityContext.Privileged = maybe(d, 4, true)
		}
	}
	return c
}

// env generates variables in all forms.
func (d *draw) env(container string) (list []corev1.EnvVar, from []corev1.EnvFromSource) {
	if d.one(2) {
		return nil, nil
	}
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{
			Name:      name,
			ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}},
		}
	}
	list = []corev1.EnvVar{
		{Name: "ONE", Value: "1"}, {Name: "TWO", Value: "$(ONE)+1 $$(ONE) $(NONE)"}, field("POD_NAME", "metadata.name"),
		field("NAMESPACE", "metadata.namespace"), field("UID", "metadata.uid"), field("NODE", "spec.nodeName"),
		field("ACCOUNT", "spec.serviceAccountName"),
		field("HOST_IP", "status.hostIP"), field("POD_IP", "status.podIP"), field("POD_IPS", "status.podIPs"),
		field("HOST_IPS", "status.hostIPs"),
		field("LABEL", "metadata.labels['app']"), field("NOTE", "metadata.annotations['note']"),
		{
			Name: "CPU",
			ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{
				Resource:      "requests.cpu",
				ContainerName: container,
				Divisor:       quantity("1m"),
			}},
		},
		{
			Name: "MEMORY",
			ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{
				Resource:      "limits.memory",
				ContainerName: container,
				Divisor:       quantity("1Gi"),
			}},
		},
	}
	if d.able.config == "" {
		return list[:d.IntN(len(list))+1], nil
	}
	config, secret := corev1.LocalObjectReference{Name: d.able.config}, corev1.LocalObjectReference{Name: d.able.secret}
	list = append(list,
		corev1.EnvVar{
			Name: "FROM_CONFIG",
			ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
				LocalObjectReference: config,
				Key:                  "two",
			}},
		},
		corev1.EnvVar{
			Name: "FROM_SECRET",
			ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: secret,
				Key:                  "user",
			}},
		},
		corev1.EnvVar{Name: "LACKING", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: config, Key: "none", Optional: new(!d.one(15)),
		}}})
	if d.one(2) {
		from = []corev1.EnvFromSource{
			{Prefix: "P_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: config}},
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: secret}},
			{ConfigMapRef: &corev1.ConfigMapEnvSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: "nothing"},
				Optional:             new(!d.one(15)),
			}},
		}
	}
	return list, from
}

// resources generates small amounts: a hundred pods share a node.
func (d *draw) resources() (r corev1.ResourceRequirements) {
	if d.one(2) {
		return r
	}
	if d.one(2) {
		r.Requests = corev1.ResourceList{
			"cpu":    quantity(d.of("1m", "3m", "5m")),
			"memory": quantity(d.of("4Mi", "8Mi")),
		}
	}
	if d.one(2) {
		r.Limits = corev1.ResourceList{"cpu": quantity(d.of("20m", "50m")), "memory": quantity(d.of("16Mi", "32Mi"))}
		if r.Requests == nil && d.one(2) {
			r.Requests = corev1.ResourceList{"cpu": quantity("2m"), "memory": quantity("4Mi")}
		}
	}
	if r.Requests == nil && r.Limits != nil { // the limits would be requested
		r.Limits = corev1.ResourceList{"cpu": quantity("5m"), "memory": quantity("8Mi")}
	}
	return r
}
