package script

import (
	"fmt"
	"os"
	goruntime "runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"keelson/test/kit/csidriver"
	"keelson/test/kit/parity"
)

// A pod whose volume cannot be published or unpublished, because the call hangs, does not affect
// other pods, also not a pod with a volume of the same driver. The number of goroutines does not
// increase, and the pod ends once the driver answers.
func TestAPodWhoseVolumeHangs(t *testing.T) {
	parity.ProvesPart(t, 3, "VOL-05") // a pod that has ended stays until its volume is unmounted
	for _, call := range []string{"NodePublishVolume", "NodeUnpublishVolume"} {
		t.Run(call, func(t *testing.T) { // one at a time: goroutines are counted
			driverDir, err := os.MkdirTemp("", "csi")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(driverDir)
			driver := csidriver.New(csidriver.Config{Name: "d.test", Dir: driverDir, Node: "n1", NoStage: true})
			if err := driver.Start(); err != nil {
				t.Fatal(err)
			}
			defer driver.Stop()
			s := Listening(t, "", func(w *World) {
				Rights(w)
				if err := driver.Register(w.Path("kubelet/plugins_registry")); err != nil {
					t.Fatal(err)
				}
			})
			if _, err := s.API.StorageV1().CSIDrivers().Create(t.Context(),
				&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "d.test"},
					Spec: storagev1.CSIDriverSpec{AttachRequired: ptr.To(false)}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			r := &Run{
				World:    s.World,
				Scenario: &Scenario{Files: map[string]string{"plain.yaml": PlainPod}},
				faults:   map[string]fault{},
			}
			for _, name := range []string{"stuck", "beside"} {
				s.claimVolume(t, name, corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
					Driver:       "d.test",
					VolumeHandle: "test-" + name,
				}})
				r.Scenario.Files[name+".yaml"] = fmt.Sprintf(`spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, volumeMounts: [{name: v, mountPath: /v}]}]
  volumes: [{name: v, persistentVolumeClaim: {claimName: %s}}]
`, name)
			}
			comes := func(name, cond string) {
				t.Helper()
				if err := s.Awaits(name, Unhurried, func(p *corev1.Pod) bool { return holds(p, cond) }); err != nil {
					t.Fatalf("%s %s: %v", name, cond, err)
				}
			}
			begin := func(files ...string) {
				t.Helper()
				if err := r.apply(files); err != nil {
					t.Fatal(err)
				}
			}
			end := func(name string) {
				t.Helper()
				if err := s.API.CoreV1().Pods(Namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			hang := make(chan struct{})
			release := func() {
				if hang != nil {
					close(hang)
					hang = nil
				}
			}
			defer release()
			leaves := call == "NodeUnpublishVolume"
			if leaves {
				begin("stuck.yaml")
				comes("stuck", "Ready")
			}
			driver.Next(call, csidriver.Fault{Hang: hang})
			if leaves {
				end("stuck")
			} else {
				begin("stuck.yaml")
			}
			Eventually(t, "the call that hangs", func() (string, bool) {
				calls := fmt.Sprint(driver.Calls())
				return calls, strings.Contains(calls, call)
			})
			begin("beside.yaml", "plain.yaml")
			comes("beside", "Ready")
			comes("plain", "Ready")
			settledAt := goruntime.NumGoroutine()
			for i := range 5 {
				name := fmt.Sprintf("later%d", i)
				begin(name + ".yaml=plain.yaml")
				comes(name, "Ready")
				end(name)
				comes(name, "gone")
			}
			Eventually(t, "no more goroutines than before", func() (string, bool) {
				n := goruntime.NumGoroutine()
				return fmt.Sprintf("%d, and there were %d", n, settledAt), n <= settledAt+steadySlack
			})
			if err := r.awaitNode(Unhurried); err != nil {
				t.Error(err)
			}
			if leaves {
				if p := s.Server.Pod(Namespace, "stuck"); p == nil {
					t.Error("the pod is gone before its volume is")
				}
			} else {
				if p := s.Server.Pod(Namespace, "stuck"); p == nil || p.Status.Phase != corev1.PodPending {
					t.Errorf("without its volume it is\n%s", s.showStatus(p))
				}
				end("stuck")
			}
			release()
			comes("stuck", "gone")
			end("beside")
			end("plain")
			comes("beside", "gone")
			comes("plain", "gone")
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
