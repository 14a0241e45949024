package script

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"keelson/test/kit/csidriver"
	"keelson/test/kit/parity"
)

// levels is an SELinux in which the label of a file depends on the level only.
type levels struct{}

func (levels) FileLabel(o *corev1.SELinuxOptions) (string, error) {
	if o == nil || o.Level == "" {
		return "", nil
	}
	return "u:r:files:" + o.Level, nil
}

// On a node with SELinux a driver mounts a volume with the label of its pod as a mount option, and
// the runtime relabels the other volumes. A pod with another label gets the volume after the first
// pod is gone. Without the gate only volumes for a single pod are mounted with a label, and on a
// node without SELinux none is.
func TestVolumesWithLabels(t *testing.T) {
	parity.ProvesPart(t, 4, "VOL-11")
	parity.ProvesPart(t, 7, "VOL-20")
	const first, second = `[context="u:r:files:s0:c1,c2"]`, `[context="u:r:files:s0:c3,c4"]`
	for name, c := range map[string]struct {
		config  string
		selinux bool
		want    []string // mount options at staging
		metrics []string
	}{
		"the gate is on": {"featureGates: {SELinuxMount: true}\n", true, []string{first, second}, []string{
			`volume_manager_selinux_volumes_admitted_total{access_mode="RWO",volume_plugin="kubernetes.io/csi/d.test"} 2`,
			`volume_manager_selinux_volume_context_mismatch_errors_total{access_mode="RWO",volume_plugin="kubernetes.io/csi/d.test"} `}},
		"the gate is off": {"", true, []string{"[]"}, []string{
			`volume_manager_selinux_volume_context_mismatch_warnings_total{access_mode="RWO",volume_plugin="kubernetes.io/csi/d.test"} 1`}},
		"the node has no SELinux": {"featureGates: {SELinuxMount: true}\n", false, []string{"[]"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			driverDir, err := os.MkdirTemp("", "csi")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(driverDir)
			driver := csidriver.New(csidriver.Config{Name: "d.test", Dir: driverDir, Node: "n1"})
			if err := driver.Start(); err != nil {
				t.Fatal(err)
			}
			defer driver.Stop()
			s := Listening(t, c.config, func(w *World) {
				Rights(w)
				if c.selinux {
					w.selinux = levels{}
				}
				if err := driver.Register(w.Path("kubelet/plugins_registry")); err != nil {
					t.Fatal(err)
				}
			})
			if strings.Contains(s.Log.String(), "SELinuxMount") && strings.Contains(s.Log.String(), "without effect") {
				t.Error("the gate is declared to be without effect")
			}
			if _, err := s.API.StorageV1().CSIDrivers().Create(t.Context(),
				&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "d.test"},
					Spec: storagev1.CSIDriverSpec{
						AttachRequired: ptr.To(false),
						SELinuxMount:   ptr.To(true),
					}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			s.claimVolume(t, "data", corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver:       "d.test",
				VolumeHandle: "test-data",
			}})
			r := &Run{World: s.World, Scenario: &Scenario{Files: map[string]string{}}, faults: map[string]fault{}}
			for _, p := range []struct{ name, level string }{{"one", "s0:c1,c2"}, {"two", "s0:c3,c4"}} {
				r.Scenario.Files[p.name+".yaml"] = fmt.Sprintf(`spec:
  terminationGracePeriodSeconds: 1
  securityContext: {seLinuxOptions: {level: "%s"}}
  containers: [{name: main, volumeMounts: [{name: v, mountPath: /v}, {name: own, mountPath: /own}]}]
  volumes: [{name: v, persistentVolumeClaim: {claimName: data}}, {name: own, emptyDir: {}}]
`, p.level)
			}
			comes := func(name, cond string) {
				t.Helper()
				if err := s.Awaits(name, time.Minute, func(p *corev1.Pod) bool { return holds(p, cond) }); err != nil {
					t.Fatalf("%s %s: %v", name, cond, err)
				}
			}
			end := func(name string) {
				t.Helper()
				if err := s.API.CoreV1().Pods(Namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				comes(name, "gone")
			}
			if err := r.apply([]string{"one.yaml"}); err != nil {
				t.Fatal(err)
			}
			comes("one", "Ready")
			config, err := r.config("one", "main")
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range config.Mounts {
				if want := c.selinux &&
					m.ContainerPath == "/own"; (m.ContainerPath == "/own" || m.ContainerPath == "/v") &&
					m.SelinuxRelabel != want {
					t.Errorf("the runtime is to label %s: %v", m.ContainerPath, m.SelinuxRelabel)
				}
			}
			if err := r.apply([]string{"two.yaml"}); err != nil {
				t.Fatal(err)
			}
			if len(c.want) == 2 {
				Eventually(t, "the second pod to have an event about why it waits", func() (string, bool) {
					reported := r.ShowEvents("two")
					return reported, strings.Contains(reported,
						`conflicting SELinux labels of volume data: "u:r:files:s0:c1,c2" and "u:r:files:s0:c3,c4"`)
				})
				end("one")
			}
			comes("two", "Ready")
			var got []string
			for _, call := range driver.Calls() {
				if req, ok := call.Request.(*csi.NodeStageVolumeRequest); ok {
					got = append(got, fmt.Sprint(req.VolumeCapability.GetMount().MountFlags))
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("staged with %v, want %v", got, c.want)
			}
			code, text := s.Ask(t, "/metrics", "good", nil)
			for _, m := range c.metrics {
				if code != 200 || !strings.Contains(text, "\n"+m) {
					t.Errorf("metrics, %d, lack %s", code, m)
				}
			}
			if n := strings.Count(text, "\nvolume_manager_selinux_"); n != len(c.metrics) {
				t.Errorf("%d figures about labels, want %d", n, len(c.metrics))
			}
			end("two")
			if len(c.want) == 1 {
				end("one")
			}
			Eventually(t, "nothing to be left", func() (string, bool) {
				left, err := s.showLeft()
				if err != nil {
					t.Fatal(err)
				}
				return left, left == "nothing\n"
			})
		})
	}
}
