package script

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"keelson/test/kit/await"
	"keelson/test/kit/csidriver"
	"keelson/test/kit/parity"
)

// claimVolume creates a claim and the volume to which it is bound, with the same name.
func (w *World) claimVolume(t *testing.T, name string, source corev1.PersistentVolumeSource) {
	t.Helper()
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	core := w.API.CoreV1()
	pvc, err := core.PersistentVolumeClaims(Namespace).Create(t.Context(),
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{VolumeName: name, AccessModes: modes},
			Status: corev1.PersistentVolumeClaimStatus{
				Phase:    corev1.ClaimBound,
				Capacity: size,
			}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pvc.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: size}
	if _, err := core.PersistentVolumeClaims(Namespace).UpdateStatus(t.Context(), pvc,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := core.PersistentVolumes().Create(t.Context(),
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
			AccessModes: modes, Capacity: size, PersistentVolumeSource: source,
			ClaimRef: &corev1.ObjectReference{
				Namespace: Namespace,
				Name:      name,
				UID:       pvc.UID,
			}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestVolumesAreReported: the summary and the metrics of an agent have volumes of all
// ways to measure: by their files, by their file system, by their driver. If a driver
// does not answer, the last figures of its volume are shown, and other volumes are not
// affected.
func TestVolumesAreReported(t *testing.T) {
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
	disk := t.TempDir()
	s := Listening(t, "volumeStatsAggPeriod: 1s\n", func(w *World) {
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
	s.claimVolume(t, "disk", corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: disk}})
	s.claimVolume(t, "plugged", corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
		Driver:       "d.test",
		VolumeHandle: "test-1",
	}})
	r := &Run{
		World:    s.World,
		Scenario: &Scenario{Files: map[string]string{"conf.yaml": "kind: ConfigMap\napiVersion: v1\ndata: {a: b}\n"}},
		faults:   map[string]fault{},
	}
	r.Scenario.Files["web.yaml"] = `spec:
  automountServiceAccountToken: false
  containers:
  - name: main
    volumeMounts: [{name: tmp, mountPath: /tmp}, {name: mem, mountPath: /mem}, {name: conf, mountPath: /conf}, {name: disk, mountPath: /disk}, {name: plugged, mountPath: /plugged}]
  volumes:
  - {name: tmp, emptyDir: {}}
  - {name: mem, emptyDir: {medium: Memory}}
  - {name: conf, configMap: {name: conf}}
  - {name: disk, persistentVolumeClaim: {claimName: disk}}
  - {name: plugged, persistentVolumeClaim: {claimName: plugged}}
`
	if err := errors.Join(r.put([]string{"conf.yaml"}), r.apply([]string{"web.yaml"})); err != nil {
		t.Fatal(err)
	}
	if err := s.Awaits("web", Unhurried, func(p *corev1.Pod) bool {
		return slices.ContainsFunc(p.Status.Conditions,
			func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
	}); err != nil {
		t.Fatal(err)
	}
	uid := string(s.Server.Pod(Namespace, "web").UID)
	const size = 1 << 20
	for _, name := range []string{"tmp", "mem"} {
		if err := os.WriteFile(filepath.Join(s.Path("kubelet/pods"), uid, "volumes/kubernetes.io~empty-dir", name, "f"),
			make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	reported := func() (map[string]stats.VolumeStats, *stats.PodStats) {
		t.Helper()
		code, text := s.Ask(t, "/stats/summary", "good", nil)
		var sum stats.Summary
		if err := json.Unmarshal([]byte(text), &sum); code != 200 || err != nil {
			t.Fatalf("%d %s %v", code, text, err)
		}
		if len(sum.Pods) != 1 {
			t.Fatalf("%d pods", len(sum.Pods))
		}
		out := map[string]stats.VolumeStats{}
		for _, v := range sum.Pods[0].VolumeStats {
			out[v.Name] = v
		}
		return out, &sum.Pods[0]
	}
	// A request waits a second for new figures, and gets the last ones otherwise.
	var have map[string]stats.VolumeStats
	var pod *stats.PodStats
	Eventually(t, "the figures of all volumes with their files", func() (string, bool) {
		have, pod = reported()
		all := len(have) == 5
		for _, name := range []string{"tmp", "mem"} {
			used := have[name].UsedBytes
			all = all && used != nil && *used >= size && pod.EphemeralStorage != nil &&
				pod.EphemeralStorage.UsedBytes != nil && *pod.EphemeralStorage.UsedBytes >= size
		}
		return fmt.Sprintf("%+v", have), all
	})
	for name, v := range have {
		if v.Time.IsZero() || v.CapacityBytes == nil || *v.CapacityBytes == 0 || v.AvailableBytes == nil ||
			v.UsedBytes == nil || v.Inodes == nil || v.InodesFree == nil || v.InodesUsed == nil {
			t.Errorf("volume %s: %+v", name, v)
		}
		claim := map[string]*stats.PVCReference{
			"disk":    {Name: "disk", Namespace: Namespace},
			"plugged": {Name: "plugged", Namespace: Namespace},
		}[name]
		if (v.PVCRef == nil) != (claim == nil) || claim != nil && *v.PVCRef != *claim {
			t.Errorf("volume %s: claim %+v, want %+v", name, v.PVCRef, claim)
		}
	}
	// Measured by their files, with the capacity of the file system that they are on.
	for _, name := range []string{"tmp", "mem"} {
		if used := *have[name].UsedBytes; used < size || used > 2*size || *have[name].InodesUsed != 2 {
			t.Errorf("volume %s: %d bytes and %d inodes used", name, used, *have[name].InodesUsed)
		}
	}
	// Measured by the file system, and by the driver.
	for _, name := range []string{"disk", "plugged"} {
		if *have[name].UsedBytes+*have[name].AvailableBytes > *have[name].CapacityBytes ||
			*have[name].UsedBytes <= size {
			t.Errorf("volume %s: %+v", name, have[name])
		}
	}
	// Volumes in memory and persistent volumes do not count as ephemeral storage of the pod.
	if own := *pod.EphemeralStorage.UsedBytes; own < size || own >= 2*size {
		t.Errorf("the pod's own storage is %d bytes", own)
	}

	hang := make(chan struct{})
	defer close(hang)
	asked := func() (n int) {
		for _, c := range driver.Calls() {
			if c.Method == "NodeGetVolumeStats" {
				n++
			}
		}
		return n
	}
	answered := asked()
	driver.Always("NodeGetVolumeStats", csidriver.Fault{Hang: hang})
	later := func(t0 metav1.Time, v stats.VolumeStats) bool { return v.Time.After(t0.Time) }
	// Wait until the figures of the other volumes are newer than the first ones that were
	// seen after the driver had stopped to answer.
	Eventually(t, "the driver to be asked once more", func() (string, bool) {
		reported()
		return fmt.Sprint(driver.Calls()), asked() > answered
	})
	before, _ := reported()
	now := before
	await.Within(t, Unhurried, 200*time.Millisecond, "figures of volumes beside one that hangs", func() (string, bool) {
		now, _ = reported()
		return fmt.Sprintf("%+v", now), later(before["tmp"].Time, now["tmp"]) &&
			later(before["disk"].Time, now["disk"]) && later(before["mem"].Time, now["mem"])
	})
	if was, is := before["plugged"].Time, now["plugged"].Time; !is.Equal(&was) {
		t.Errorf("the volume of a driver that does not answer is shown as %+v", now["plugged"])
	}
	code, text := s.Ask(t, "/metrics", "good", nil)
	if code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	for _, claim := range []string{"disk", "plugged"} {
		for _, what := range []string{"capacity_bytes", "available_bytes", "used_bytes", "inodes", "inodes_free",
			"inodes_used"} {
			if series := "kubelet_volume_stats_" + what + `{namespace="default",persistentvolumeclaim="` + claim +
				`"} `; !strings.Contains(text, "\n"+series) {
				t.Errorf("no %s", series)
			}
		}
	}
	for _, source := range []string{"du", "statfs", "d.test"} {
		if series := `kubelet_volume_metric_collection_duration_seconds_count{metric_source="` + source +
			`"} `; !strings.Contains(text, "\n"+series) {
			t.Errorf("no %s", series)
		}
	}
	// Volumes of a claim are counted for the plugin of the PersistentVolume.
	for series, want := range map[string]string{
		`volume_manager_total_volumes{plugin_name="kubernetes.io/csi:d.test",state="desired_state_of_world"}`:                                                "1",
		`volume_manager_total_volumes{plugin_name="kubernetes.io/csi:d.test",state="actual_state_of_world"}`:                                                 "1",
		`volume_operation_total_seconds_count{operation_name="overall_volume_mount",plugin_name="kubernetes.io/csi:d.test"}`:                                 "1",
		`storage_operation_duration_seconds_count{migrated="false",operation_name="volume_mount",status="success",volume_plugin="kubernetes.io/csi:d.test"}`: "1",
	} {
		if !strings.Contains(text, "\n"+series+" "+want+"\n") {
			t.Errorf("no %s %s", series, want)
		}
	}
	if strings.Contains(text, "persistent-claim") {
		t.Error("a claim is counted as a kind of volume")
	}
	parity.Proves(t, "SRV-52")
	parity.ProvesPart(t, 2, "SRV-41")
}
