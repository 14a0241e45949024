//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authnv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"keelson/test/kit/parity"
)

// mounted adds a volume and mounts it into the first container.
func mounted(name, path string, source corev1.VolumeSource) spec {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
		c := &p.Spec.Containers[0]
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path})
	}
}

func (s *space) configMap(name string, data map[string]string) {
	s.t.Helper()
	_, err := s.Cluster.Client.CoreV1().ConfigMaps(s.ns).Create(s.t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Data:       data,
	}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *space) secret(name string, data map[string]string) {
	s.t.Helper()
	_, err := s.Cluster.Client.CoreV1().Secrets(s.ns).Create(s.t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		StringData: data,
	}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
}

// listing parses the output of the demo's ls: mode and owner by file.
func listing(out string) map[string]string {
	files := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		if f := strings.Fields(line); len(f) >= 4 {
			files[f[3]] = f[0] + " " + f[1]
		}
	}
	return files
}

// TestVolumes checks volumes of every built-in kind inside the container.
func TestVolumes(t *testing.T) {
	t.Parallel()
	parity.ProvesPart(t, 3, "VOL-33")
	parity.ProvesPart(t, 3, "VOL-45")
	parity.ProvesPart(t, 2, "VOL-47")
	s := shared(t).namespace(t)
	host := filepath.Join(s.Dir, "shown-"+s.ns)
	if err := os.WriteFile(host, []byte("from the host"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.configMap("conf", map[string]string{"a": "letter a", "b": "letter b"})
	s.secret("hidden", map[string]string{"word": "sesame"})
	downward := corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
		{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
		{
			Path:             "deep/cpu",
			ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: "main", Resource: "limits.cpu"},
			Mode:             ptr(int32(0o400)),
		},
	}}
	p := s.demo("look", []string{"ls", "/empty", "/memory", "/conf", "/hidden", "/down", "/down/deep/cpu", "/all",
		"/host", "/one",
		"/var/run/secrets/kubernetes.io/serviceaccount"},
		mounted("empty", "/empty", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}),
		mounted("memory", "/memory",
			corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}),
		mounted(
			"conf",
			"/conf",
			corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: "conf"},
				},
			},
		),
		mounted("hidden", "/hidden", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName:  "hidden",
			DefaultMode: ptr(int32(0o440)),
		}}),
		mounted("down", "/down", corev1.VolumeSource{DownwardAPI: &downward}),
		mounted("all", "/all",
			corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{
					ConfigMap: &corev1.ConfigMapProjection{
						LocalObjectReference: corev1.LocalObjectReference{Name: "conf"},
						Items:                []corev1.KeyToPath{{Key: "a", Path: "first"}},
					},
				},
				{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "hidden"}}},
				{
					ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
						Path:              "token",
						Audience:          "other",
						ExpirationSeconds: ptr(int64(600)),
					},
				},
			}}}),
		mounted("host", "/host", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
			Path: host,
			Type: ptr(corev1.HostPathFile),
		}}),
		func(p *corev1.Pod) {
			p.Labels = map[string]string{"colour": "green"}
			c := &p.Spec.Containers[0]
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "conf", MountPath: "/one", SubPath: "b"})
		})
	out := s.says(p)
	s.lists(out, map[string]string{
		"/empty":         "drwxrwxrwx 0:0",
		"/memory":        "dtrwxrwxrwx 0:0",
		"/conf":          "drwxrwxrwx 0:0",
		"/conf/a":        "Lrwxrwxrwx 0:0",
		"/conf/..data":   "Lrwxrwxrwx 0:0",
		"/hidden/word":   "Lrwxrwxrwx 0:0",
		"/down/labels":   "Lrwxrwxrwx 0:0",
		"/down/deep/cpu": "-r-------- 0:0",
		"/all/first":     "Lrwxrwxrwx 0:0",
		"/all/word":      "Lrwxrwxrwx 0:0",
		"/all/token":     "Lrwxrwxrwx 0:0",
		"/host":          "-rw------- 0:0",
		"/one":           "-rw-r--r-- 0:0",
		"/var/run/secrets/kubernetes.io/serviceaccount/token":     "Lrwxrwxrwx 0:0",
		"/var/run/secrets/kubernetes.io/serviceaccount/ca.crt":    "Lrwxrwxrwx 0:0",
		"/var/run/secrets/kubernetes.io/serviceaccount/namespace": "Lrwxrwxrwx 0:0",
	})
	again := s.demo("read", []string{"cat", "/conf/a", "/hidden/word", "/down/labels", "/host", "/one",
		"/var/run/secrets/kubernetes.io/serviceaccount/namespace"})
	again.Labels, again.Spec.Volumes = p.Labels, p.Spec.Volumes
	again.Spec.Containers[0].VolumeMounts = p.Spec.Containers[0].VolumeMounts
	if got, want := s.says(again), "letter asesame"+`colour="green"`+"from the hostletter b"+s.ns; got != want {
		t.Errorf("contents %q, want %q", got, want)
	}
}

// TestNestedMounts mounts a volume below one of each kind that containers cannot write
// to: the agent creates the mount point for the runtime.
func TestNestedMounts(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	s.configMap("conf", map[string]string{"a": "letter a"})
	s.secret("hidden", map[string]string{"word": "sesame"})
	items := []corev1.DownwardAPIVolumeFile{
		{Path: "name", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}},
	}
	out := s.says(s.demo("nested", []string{"ls", "/conf/a", "/conf/in", "/hidden/word", "/hidden/in", "/down/name",
		"/down/deep/in", "/all/name", "/all/in"},
		mounted(
			"conf",
			"/conf",
			corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: "conf"},
				},
			},
		),
		mounted("hidden", "/hidden", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "hidden"}}),
		mounted("down", "/down", corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: items}}),
		mounted(
			"all",
			"/all",
			corev1.VolumeSource{
				Projected: &corev1.ProjectedVolumeSource{
					Sources: []corev1.VolumeProjection{{DownwardAPI: &corev1.DownwardAPIProjection{Items: items}}},
				},
			},
		),
		mounted("free", "/conf/in", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}),
		func(p *corev1.Pod) {
			c := &p.Spec.Containers[0]
			for _, at := range []string{"/hidden/in", "/down/deep/in", "/all/in"} {
				c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "free", MountPath: at})
			}
		}))
	s.lists(out, map[string]string{
		"/conf/a":       "-rw-r--r-- 0:0",
		"/conf/in":      "drwxrwxrwx 0:0",
		"/hidden/word":  "-rw-r--r-- 0:0",
		"/hidden/in":    "drwxrwxrwx 0:0",
		"/down/name":    "-rw-r--r-- 0:0",
		"/down/deep/in": "drwxrwxrwx 0:0",
		"/all/name":     "-rw-r--r-- 0:0",
		"/all/in":       "drwxrwxrwx 0:0",
	})
}

// lists compares the output of the demo's ls with mode and owner of files.
func (s *space) lists(out string, want map[string]string) {
	s.t.Helper()
	have := listing(out)
	for file, is := range want {
		if have[file] != is {
			s.t.Errorf("%s is %q, want %q", file, have[file], is)
		}
	}
	if s.t.Failed() {
		s.t.Log(out)
	}
}

// TestVolumeOwnership gives volumes to a group and a user that is not root.
func TestVolumeOwnership(t *testing.T) {
	t.Parallel()
	parity.ProvesPart(t, 8, "VOL-17")
	s := shared(t).namespace(t)
	s.secret("hidden", map[string]string{"word": "sesame"})
	out := s.says(s.demo("owned", []string{"ls", "/empty", "/hidden/..data/word",
		"/var/run/secrets/kubernetes.io/serviceaccount/..data/token"},
		mounted("empty", "/empty", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}),
		mounted("hidden", "/hidden", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName:  "hidden",
			DefaultMode: ptr(int32(0o400)),
		}}),
		func(p *corev1.Pod) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr(int64(2000)), RunAsUser: ptr(int64(1000))}
		}))
	s.lists(out, map[string]string{
		"/empty":              "dgrwxrwxrwx 0:2000",
		"/hidden/..data/word": "-r--r----- 0:2000",
		"/var/run/secrets/kubernetes.io/serviceaccount/..data/token": "-rw-r----- 1000:2000",
	})
}

// TestConfigMapUpdate checks that a change of the object is seen in the running container, and
// that a container with a missing object waits until the object exists.
func TestConfigMapUpdate(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	s.create(s.demo("reader", []string{"sleep"},
		mounted(
			"conf",
			"/conf",
			corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: "conf"},
				},
			},
		),
		func(p *corev1.Pod) { p.Labels = map[string]string{"v": "1"} },
		mounted("down", "/down",
			corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}})))
	s.event("reader", "FailedMount", `configmap "conf" not found`)
	s.pod("reader", "waiting for its volume", func(p *corev1.Pod) bool {
		c := container(p, "main")
		return c.State.Waiting != nil && c.State.Waiting.Reason == "ContainerCreating"
	})
	s.configMap("conf", map[string]string{"a": "old"})
	p := s.ready("reader")
	s.kubectlDo("patch", "configmap", "conf", "-p", `{"data":{"a":"new","b":"more"}}`)
	s.kubectlDo("label", "pod", "reader", "v=2", "--overwrite")
	s.until("the new content", func() (string, bool) {
		got := s.kubectlDo("exec", "reader", "--", "/demo", "cat", "/conf/a", "/down/labels")
		return got, got == `newv="2"`
	})
	if got := s.kubectlDo("exec", "reader", "--", "/demo", "cat", "/conf/b"); got != "more" {
		t.Errorf("new key %q", got)
	}
	if now := s.ready("reader"); container(now, "main").ContainerID != container(p, "main").ContainerID {
		t.Error("the container was restarted")
	}
}

// TestTokenServes authenticates at the API server with the mounted token.
func TestTokenServes(t *testing.T) {
	t.Parallel()
	s := shared(t).namespace(t)
	s.create(s.demo("caller", []string{"sleep"}))
	s.ready("caller")
	c := rest.AnonymousClientConfig(s.Cluster.REST)
	c.BearerToken = s.kubectlDo("exec", "caller", "--", "/demo", "cat",
		"/var/run/secrets/kubernetes.io/serviceaccount/token")
	client, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	me, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authnv1.SelfSubjectReview{},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	user := me.Status.UserInfo
	if user.Username != "system:serviceaccount:"+s.ns+":default" ||
		fmt.Sprint(user.Extra["authentication.kubernetes.io/pod-name"]) != "[caller]" {
		t.Errorf("the token is of %+v", user)
	}
}
