package manifest

import (
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"keelson/test/kit/parity"
)

var onNode1 = Compiler{NodeName: "node1"}

func manifestText(name, image string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  containers:\n  - name: main\n    "+
		"image: %s\n", name, image)
}

func parse(t *testing.T, path, text string) *v1.Pod {
	t.Helper()
	p, _, err := onNode1.File(path, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestStaticPodIdentity(t *testing.T) {
	parity.Proves(t, "SRC-09")
	parity.ProvesPart(t, 2, "SRC-07")
	p := parse(t, "/m/a.yaml", manifestText("web", "one"))
	if p.Name != "web-node1" || p.Namespace != "default" || p.Spec.NodeName != "node1" ||
		p.Status.Phase != v1.PodPending {
		t.Errorf("pod = %s/%s on %s, %s", p.Namespace, p.Name, p.Spec.NodeName, p.Status.Phase)
	}
	if len(p.UID) != 32 || strings.Trim(string(p.UID), "0123456789abcdef") != "" ||
		p.Annotations["kubernetes.io/config.hash"] != string(p.UID) {
		t.Errorf("UID = %s, annotations %v", p.UID, p.Annotations)
	}
	if len(p.Spec.Tolerations) != 1 || p.Spec.Tolerations[0] != (v1.Toleration{
		Operator: "Exists",
		Effect:   "NoExecute",
	}) {
		t.Errorf("tolerations = %v", p.Spec.Tolerations)
	}
	own := parse(t, "/m/a.yaml", manifestText("web", "one")+"\n  tolerations:\n"+
		"  - {key: a, operator: Exists}\n  - {operator: Exists, effect: NoExecute, tolerationSeconds: 5}\n").Spec.Tolerations
	if len(own) != 2 || own[0] != (v1.Toleration{Key: "a", Operator: "Exists"}) ||
		own[1] != (v1.Toleration{Operator: "Exists", Effect: "NoExecute"}) {
		t.Errorf("beside tolerations of its own: %v", own)
	}
	same := parse(t, "/m/a.yaml",
		"# a comment\n"+
			strings.ReplaceAll(manifestText("web", "one"), "metadata: {name: web}", "metadata:\n  name: web"))
	other, _, _ := Compiler{NodeName: "node2"}.File("/m/a.yaml", []byte(manifestText("web", "one")))
	for name, q := range map[string]struct {
		p    *v1.Pod
		same bool
	}{
		"the same in other notation": {same, true},
		"another image":              {parse(t, "/m/a.yaml", manifestText("web", "two")), false},
		"another path":               {parse(t, "/m/b.yaml", manifestText("web", "one")), false},
		"another node":               {other, false},
	} {
		if (q.p.UID == p.UID) != q.same {
			t.Errorf("%s: UID %s beside %s", name, q.p.UID, p.UID)
		}
	}
	given := parse(t, "/m/a.yaml",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: a, uid: mine, namespace: kube-system}\nspec: {containers: "+
			"[{name: a, image: b}]}")
	if given.UID != "mine" || given.Annotations["kubernetes.io/config.hash"] != "mine" ||
		given.Namespace != "kube-system" {
		t.Errorf("a manifest with a UID: %s in %s", given.UID, given.Namespace)
	}

	byURL, err := onNode1.URL("http://x", []byte(manifestText("web", "one")))
	if err != nil || len(byURL) != 1 || len(byURL[0].Spec.Tolerations) != 0 || byURL[0].UID == p.UID {
		t.Errorf("by URL: %v %v", byURL, err)
	}
}

// TestServerFieldsOfManifestAreDropped: fields that only the API server may set are validated, and dropped.
func TestServerFieldsOfManifestAreDropped(t *testing.T) {
	parity.Differs(t, "SRC-57", "0115")
	const plain = "apiVersion: v1\nkind: Pod\nmetadata: {name: a, annotations: {mine: x}}\n" +
		"spec: {containers: [{name: a, image: b}]}\n"
	text := strings.Replace(plain, "{mine: x}}",
		`{mine: x, kubernetes.io/config.mirror: x}, resourceVersion: "7", deletionTimestamp: "2020-01-01T00:00:00Z",
  deletionGracePeriodSeconds: 5, finalizers: [a/b],
  ownerReferences: [{apiVersion: v1, kind: Node, name: node, uid: u}]}`, 1)
	p := parse(t, "/m/a.yaml",
		text+"status: {phase: Failed, reason: x, podIP: 10.0.0.1, conditions: [{type: Ready, status: \"True\"}]}\n")
	want := parse(t, "/m/a.yaml", plain)
	if p.UID == want.UID {
		t.Error("the dropped fields do not change the UID")
	}
	want.UID, want.Annotations["kubernetes.io/config.hash"] = p.UID, string(p.UID)
	if !reflect.DeepEqual(p, want) || p.Status.Phase != v1.PodPending {
		t.Errorf("pod %+v, want %+v", p, want)
	}
	for field, bad := range map[string]string{
		"finalizers":      "finalizers: [mine]",
		"ownerReferences": "ownerReferences: [{apiVersion: v1, name: x, uid: u}]",
	} {
		text := strings.Replace(plain, "name: a,", "name: a, "+bad+",", 1)
		_, _, err := onNode1.File("/m/a.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), "metadata."+field) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestEmptyAPIGroup: the apiVersion "/v1", with an empty group, is the same as "v1".
func TestEmptyAPIGroup(t *testing.T) {
	const plain = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: b}]}\n"
	want := parse(t, "/m/a.yaml", plain)
	p := parse(t, "/m/a.yaml", strings.Replace(plain, "apiVersion: v1", "apiVersion: /v1", 1))
	if !reflect.DeepEqual(p, want) {
		t.Errorf("pod %+v, want %+v", p, want)
	}
	for _, version := range []string{"//v1", "core/v1", "v1/", "v2", "/"} {
		text := strings.Replace(plain, "apiVersion: v1", "apiVersion: "+version, 1)
		if _, _, err := onNode1.File("/m/a.yaml", []byte(text)); err == nil {
			t.Errorf("%s is accepted", version)
		}
	}
}

// TestUIDMustBeDirectoryName: a UID that cannot be the name of a directory is rejected.
func TestUIDMustBeDirectoryName(t *testing.T) {
	parity.Differs(t, "SRC-58", "0116")
	for uid, taken := range map[string]bool{
		"7e2fa1b0-53d4-4c0f-9f0c-0d4f2a3f3c11": true,
		"0f6ee0bdfb5c8b9a1f2e3d4c5b6a7988":     true,
		"my pod's":                             true,
		"...":                                  true,
		strings.Repeat("a", 128):               true,
		strings.Repeat("a", 129):               false,
		"../../../etc/cron.d":                  false,
		"a/b":                                  false,
		"/":                                    false,
		".":                                    false,
		"..":                                   false,
		"a\nb":                                 false,
		"a\x7f":                                false,
		"ünicode":                              false,
	} {
		text := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: a, uid: %q}\n"+
			"spec: {containers: [{name: a, image: b}]}\n", uid)
		p, _, err := onNode1.File("/m/a.yaml", []byte(text))
		switch {
		case taken && (err != nil || string(p.UID) != uid):
			t.Errorf("%q: %v", uid, err)
		case !taken && (err == nil || !strings.Contains(err.Error(), "metadata.uid: Invalid value: ") ||
			!strings.Contains(err.Error(), "at most 128 printable characters")):
			t.Errorf("%q: %v", uid, err)
		}
	}
}

// The golden pods are those that an API server created from the manifests in the same directory.
func TestDefaultsMatchAPIServer(t *testing.T) {
	parity.ProvesPart(t, 2, "SRC-10")
	for _, name := range []string{"guaranteed", "burstable", "besteffort"} {
		t.Run(name, func(t *testing.T) {
			read := func(path string) *v1.Pod {
				text, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				p := new(v1.Pod)
				if err := yaml.Unmarshal(text, p); err != nil {
					t.Fatal(err)
				}
				return p
			}
			got, want := read("testdata/"+name+".yaml"), read("testdata/"+name+"-stored.json")
			dropAdmission(&want.Spec)
			setDefaults(got)
			if !equality.Semantic.DeepEqual(got.Spec, want.Spec) {
				a, _ := yaml.Marshal(got.Spec)
				b, _ := yaml.Marshal(want.Spec)
				t.Errorf("got\n%s\nwant\n%s", a, b)
			}
			got.Name, got.Namespace = "a", "default"
			got.Spec.ServiceAccountName = "default" // as admission has it
			if errs := (Compiler{}).validate(got); len(errs) > 0 {
				t.Errorf("refused: %v", errs)
			}
		})
	}
}

// dropAdmission removes what the API server's admission plugins added: the
// service account, the priority and the tolerations.
func dropAdmission(s *v1.PodSpec) {
	s.ServiceAccountName, s.DeprecatedServiceAccount, s.NodeName = "", "", ""
	s.Priority, s.PreemptionPolicy, s.Tolerations = nil, nil, nil
	ours := func(name string) bool { return strings.HasPrefix(name, "kube-api-access-") }
	s.Volumes = slices.DeleteFunc(s.Volumes, func(v v1.Volume) bool { return ours(v.Name) })
	for _, list := range [][]v1.Container{s.InitContainers, s.Containers} {
		for i := range list {
			list[i].VolumeMounts = slices.DeleteFunc(list[i].VolumeMounts,
				func(m v1.VolumeMount) bool { return ours(m.Name) })
		}
	}
}

func requirements(request, limit string) v1.ResourceRequirements {
	return v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(request)},
		Limits:   v1.ResourceList{v1.ResourceCPU: resource.MustParse(limit)},
	}
}

func TestPullPolicyFollowsTheTag(t *testing.T) {
	const digest = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	for image, want := range map[string]v1.PullPolicy{
		"busybox": "Always", "busybox:latest": "Always", "busybox:1.37": "IfNotPresent", "host:5000/busybox": "Always",
		"host:5000/busybox:1": "IfNotPresent", "busybox@" + digest: "IfNotPresent",
		"busybox:1@" + digest:      "IfNotPresent",
		"busybox:latest@" + digest: "Always", "": "IfNotPresent",
	} {
		if got := pullPolicy(image); got != want {
			t.Errorf("%s: %s, want %s", image, got, want)
		}
	}
}

func TestNegativeGracePeriodIsOneSecond(t *testing.T) {
	p := &v1.Pod{Spec: v1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](-1)}}
	setDefaults(p)
	if *p.Spec.TerminationGracePeriodSeconds != 1 {
		t.Errorf("grace %d", *p.Spec.TerminationGracePeriodSeconds)
	}
}

func TestReferencesToAPIObjects(t *testing.T) {
	parity.Proves(t, "SRC-11")
	parity.ProvesPart(t, 4, "VOL-48")
	for spec, want := range map[string]string{
		"serviceAccountName: x":                                       "spec.serviceAccountName",
		"serviceAccount: x":                                           "spec.serviceAccount",
		"imagePullSecrets: [{name: x}]":                               "spec.imagePullSecrets",
		"resourceClaims: [{name: x, resourceClaimName: z}]":           "spec.resourceClaims",
		"volumes: [{name: v, secret: {secretName: x}}]":               "spec.volumes[0].secret",
		"volumes: [{name: v, configMap: {name: x}}]":                  "spec.volumes[0].configMap",
		"volumes: [{name: v, csi: {driver: x}}]":                      "spec.volumes[0].csi",
		"volumes: [{name: v, persistentVolumeClaim: {claimName: x}}]": "spec.volumes[0].persistentVolumeClaim",
		"volumes: [{name: v, ephemeral: {}}]":                         "spec.volumes[0].ephemeral",

		"volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: x}}]}}]":                           "spec.volumes[0].projected.sources[0].serviceAccountToken",
		"volumes: [{name: v, projected: {sources: [{secret: {name: x}}]}}]":                                        "spec.volumes[0].projected.sources[0].secret",
		"volumes: [{name: v, projected: {sources: [{configMap: {name: x}}]}}]":                                     "spec.volumes[0].projected.sources[0].configMap",
		"volumes: [{name: v, projected: {sources: [{clusterTrustBundle: {name: x, path: z}}]}}]":                   "spec.volumes[0].projected.sources[0].clusterTrustBundle",
		"volumes: [{name: v, projected: {sources: [{podCertificate: {signerName: x, keyType: ED25519}}]}}]":        "spec.volumes[0].projected.sources[0].podCertificate",
		"initContainers: [{name: i, image: x, envFrom: [{configMapRef: {name: x}}]}]":                              "spec.initContainers[0].envFrom[0].configMapRef",
		"initContainers: [{name: i, image: x, env: [{name: A, valueFrom: {secretKeyRef: {name: x, key: z}}}]}]":    "spec.initContainers[0].env[0].valueFrom.secretKeyRef",
		"initContainers: [{name: i, image: x, env: [{name: A, valueFrom: {configMapKeyRef: {name: x, key: z}}}]}]": "spec.initContainers[0].env[0].valueFrom.configMapKeyRef",
	} {
		text := []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: m, image: x}], " +
			spec +
			"}")
		_, _, err := onNode1.File("/a", text)
		if err == nil || !strings.Contains(err.Error(), want+": Forbidden: a static pod may not refer to") {
			t.Errorf("%s: %v", spec, err)
		}
		_, _, err = Compiler{NodeName: "n", AllowAPIReferences: true}.File("/a", text)
		if err != nil && strings.Contains(err.Error(), "static pod may not") {
			t.Errorf("%s with references allowed: %v", spec, err)
		}
	}
}

func TestValidate(t *testing.T) {
	parity.ProvesPart(t, 3, "PROBE-07")
	parity.ProvesPart(t, 2, "SRC-10")
	for _, tc := range []struct {
		name string
		edit func(*v1.Pod)
		want string
	}{
		{"no name", func(p *v1.Pod) { p.Name = "" }, "metadata.name: Required value: name or generateName is required"},
		{"a bad name", func(p *v1.Pod) { p.Name = "A_b" },
			`metadata.name: Invalid value: "A_b": a lowercase RFC 1123 subdomain must consist of`},
		{"a bad label", func(p *v1.Pod) { p.Labels = map[string]string{"a": "b c"} },
			`metadata.labels: Invalid value: "b c"`},
		{"no containers", func(p *v1.Pod) { p.Spec.Containers = nil }, "spec.containers: Required value"},
		{"a container without a name", func(p *v1.Pod) { p.Spec.Containers[0].Name = "" },
			"spec.containers[0].name: Required value"},
		{"a bad container name", func(p *v1.Pod) { p.Spec.Containers[0].Name = "a.b" },
			`spec.containers[0].name: Invalid value: "a.b": must not contain dots`},
		{"no image", func(p *v1.Pod) { p.Spec.Containers[0].Image = "" }, "spec.containers[0].image: Required value"},
		{"two of a name", func(p *v1.Pod) { p.Spec.InitContainers = p.Spec.Containers },
			`spec.containers[0].name: Duplicate value: "main"`},
		{"a restart policy", func(p *v1.Pod) { p.Spec.RestartPolicy = "Sometimes" },
			`spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"`},
		{"a pull policy", func(p *v1.Pod) { p.Spec.Containers[0].ImagePullPolicy = "Often" },
			`spec.containers[0].imagePullPolicy: Unsupported value: "Often"`},
		{"a mount without its volume", func(p *v1.Pod) {
			p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/d"}}
		}, `spec.containers[0].volumeMounts[0].name: Not found: "data"`},
		{"two mounts on one path", func(p *v1.Pod) {
			p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
			p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/d"}, {Name: "v", MountPath: "/d"}}
		}, `spec.containers[0].volumeMounts[1].mountPath: Invalid value: "/d": must be unique`},
		{"a sub-path that leads out", func(p *v1.Pod) {
			p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
			p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/d", SubPath: "a/../../b"}}
		}, `volumeMounts[0].subPath: Invalid value: "a/../../b": must not contain '..'`},
		{"two volumes of a name", func(p *v1.Pod) {
			v := v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}
			p.Spec.Volumes = []v1.Volume{v, v}
		}, `spec.volumes[1].name: Duplicate value: "v"`},
		{"two kinds in one volume", func(p *v1.Pod) {
			p.Spec.Volumes = []v1.Volume{{
				Name: "v",
				VolumeSource: v1.VolumeSource{
					EmptyDir: &v1.EmptyDirVolumeSource{},
					HostPath: &v1.HostPathVolumeSource{Path: "/"},
				},
			}}
		}, `spec.volumes[0]: Forbidden: may not specify more than 1 volume type`},
		{"a host path that leads out", func(p *v1.Pod) {
			p.Spec.Volumes = []v1.Volume{{
				Name:         "v",
				VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/a/../b"}},
			}}
		}, `spec.volumes[0].hostPath.path: Invalid value: "/a/../b": must not contain '..'`},
		{"a probe without a handler", func(p *v1.Pod) { p.Spec.Containers[0].LivenessProbe = &v1.Probe{} },
			"spec.containers[0].livenessProbe: Required value: must specify a handler type"},
		{"a probe with two", func(p *v1.Pod) {
			p.Spec.Containers[0].ReadinessProbe = &v1.Probe{
				ProbeHandler: v1.ProbeHandler{
					Exec: &v1.ExecAction{Command: []string{"a"}},
					GRPC: &v1.GRPCAction{Port: 1},
				},
			}
		}, "spec.containers[0].readinessProbe: Forbidden: may not specify more than 1 handler type"},
		{"liveness that must succeed twice", func(p *v1.Pod) {
			p.Spec.Containers[0].LivenessProbe = &v1.Probe{
				SuccessThreshold: 2,
				ProbeHandler:     v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"a"}}},
			}
		}, "spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1"},
		{"a startup probe that must succeed twice", func(p *v1.Pod) {
			p.Spec.Containers[0].StartupProbe = &v1.Probe{
				SuccessThreshold: 2,
				ProbeHandler:     v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"a"}}},
			}
		}, "spec.containers[0].startupProbe.successThreshold: Invalid value: 2: must be 1"},
		{"a port out of range", func(p *v1.Pod) { p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 70000}} },
			"spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive"},
		{"a host port twice", func(p *v1.Pod) {
			p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 1, HostPort: 80}, {ContainerPort: 2, HostPort: 80}}
		}, "spec.containers[0].ports[1].hostPort: Duplicate value"},
		{"another host port on the host network", func(p *v1.Pod) {
			p.Spec.HostNetwork = true
			p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 1, HostPort: 80}}
		}, "hostPort: Invalid value: 80: must match `containerPort` when `hostNetwork` is true"},
		{"a variable without a name", func(p *v1.Pod) { p.Spec.Containers[0].Env = []v1.EnvVar{{Value: "x"}} },
			"spec.containers[0].env[0].name: Required value"},
		{"an unknown field", func(p *v1.Pod) {
			p.Spec.Containers[0].Env = []v1.EnvVar{{
				Name:      "A",
				ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: "spec.hair"}},
			}}
		}, `spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Unsupported value: "spec.hair"`},
		{"a request above its limit", func(p *v1.Pod) { p.Spec.Containers[0].Resources = requirements("2", "1") },
			`spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1`},
		{"containers that request more than their pod", func(p *v1.Pod) {
			p.Spec.Containers[0].Resources = requirements("2", "4")
			p.Spec.Resources = ptr.To(requirements("1", "4"))
		},
			`spec.resources.requests[cpu]: Invalid value: "1": must be greater than or equal to aggregate container requests of 2`},
		{"an init container that requests more than the pod", func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{Name: "i", Image: "x", Resources: requirements("3", "4")}}
			p.Spec.Resources = ptr.To(requirements("1", "4"))
		},
			`spec.resources.requests[cpu]: Invalid value: "1": must be greater than or equal to aggregate container requests of 3`},
		{"a container that may take more than its pod", func(p *v1.Pod) {
			p.Spec.Containers[0].Resources = requirements("1", "4")
			p.Spec.Resources = ptr.To(requirements("1", "2"))
		}, `spec.containers[0].resources.limits[cpu]: Invalid value: "4": must be less than or equal to pod limits of 2`},
		{"a limit that no pod has as a whole", func(p *v1.Pod) {
			p.Spec.Resources = ptr.To(requirements("1", "2"))
			p.Spec.Resources.Limits[v1.ResourceEphemeralStorage] = resource.MustParse("1Gi")
		}, `spec.resources.limits[ephemeral-storage]: Unsupported value: "ephemeral-storage"`},
		{"claims of a pod as a whole", func(p *v1.Pod) {
			p.Spec.Resources = ptr.To(requirements("1", "2"))
			p.Spec.Resources.Claims = []v1.ResourceClaim{{Name: "a"}}
		}, "spec.resources.claims: Forbidden: claims may not be set for Resources at pod-level"},
		{"no name servers", func(p *v1.Pod) { p.Spec.DNSPolicy = v1.DNSNone },
			"spec.dnsConfig.nameservers: Required value: must provide at least one DNS nameserver when `dnsPolicy` is None"},
		{"ephemeral containers", func(p *v1.Pod) { p.Spec.EphemeralContainers = make([]v1.EphemeralContainer, 1) },
			"spec.ephemeralContainers: Forbidden: cannot be set on create"},
		{"a bad toleration", func(p *v1.Pod) { p.Spec.Tolerations = []v1.Toleration{{Value: "x"}} },
			"spec.tolerations[0].operator: Invalid value"},
		{"propagation without privilege", func(p *v1.Pod) {
			p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
			p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{
				Name:             "v",
				MountPath:        "/d",
				MountPropagation: ptr.To(v1.MountPropagationBidirectional),
			}}
		}, "mountPropagation: Forbidden: Bidirectional mount propagation is available only to privileged containers"},
		{"a probe of an init container", func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{
				Name:          "i",
				Image:         "x",
				LivenessProbe: &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"a"}}}},
			}}
		},
			"spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Name:      "web",
					Namespace: "default",
					UID:       "1",
				},
				Spec: v1.PodSpec{
					NodeName:   "node1",
					Containers: []v1.Container{{Name: "main", Image: "busybox"}},
				},
			}
			p.Spec.Containers[0].Name = "main"
			tc.edit(p)
			setDefaults(p)
			errs := (Compiler{}).validate(p)
			if len(errs) != 1 || !strings.Contains(errs[0].Error(), tc.want) {
				t.Errorf("errors = %v, want %s", errs, tc.want)
			}
		})
	}
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(manifestText("a", "b")))
	f.Add([]byte("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {volumes: [{hostPath: {}}], containers: " +
		"[{livenessProbe: {}, resources: {limits: {cpu: -1}}}]}"))
	f.Add([]byte("kind: PodList\nitems: [null, 3]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if p, _, err := onNode1.File("/a", text); err == nil && (p.Name == "" || len(p.Spec.Containers) == 0) {
			t.Errorf("accepted %q", text)
		}
		if pods, err := onNode1.URL("http://a", text); err == nil {
			for _, p := range pods {
				if p.Name == "" {
					t.Errorf("accepted %q", text)
				}
			}
		}
	})
}

// TestUIDIsIndependentOfTimeZone: the UID does not depend on whether the process has loaded the local time zone before.
// Upstream's UID contains the name of the zone, which package time loads on first use.
func TestUIDIsIndependentOfTimeZone(t *testing.T) {
	const env = "KEELSON_TEST_UID_OF_A_TIME"
	text := "apiVersion: v1\nkind: Pod\nmetadata: {name: a, creationTimestamp: \"2026-01-01T00:00:00Z\"}\n" +
		"spec: {containers: [{name: a, image: b}]}\n"
	if os.Getenv(env) != "" {
		fmt.Printf("UID %s.\n", parse(t, "/m/a.yaml", text).UID)
		return
	}
	_ = time.Now().Local().String()
	want := fmt.Sprintf("UID %s.\n", parse(t, "/m/a.yaml", text).UID)
	fresh := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestUIDIsIndependentOfTimeZone$")
	fresh.Env = append(os.Environ(), env+"=1")
	out, err := fresh.Output()
	if err != nil || !strings.Contains(string(out), want) {
		t.Errorf("a program that has just begun says %q (%v), want %q", out, err, want)
	}
}
