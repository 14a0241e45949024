//go:build e2e

package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"keelson/test/kit/csidriver"
)

// attacherFinalizer is the finalizer that the test's attacher sets on attachments.
const attacherFinalizer = "external-attacher/e2e"

// storage is a CSI driver on the node, with its objects in the cluster, and an
// attacher that handles VolumeAttachments. The driver runs in this process; its
// mounts are those of the node.
type storage struct {
	*space
	driver *csidriver.Driver
	name   string // of the driver and of its class

	mu       sync.Mutex
	refuse   *storagev1.VolumeError // every attachment fails with it
	attached map[string]int         // by handle: how often
	detached map[string]int
	wrong    []string
}

// storage registers a driver whose volumes have to be attached, and removes it at the
// end of the test.
func (s *space) storage(edit func(*storagev1.CSIDriverSpec)) *storage {
	s.t.Helper()
	st := &storage{
		space:    s,
		name:     s.ns + ".csi.keelson.example",
		attached: map[string]int{},
		detached: map[string]int{},
	}
	dir := filepath.Join(s.Dir, s.ns)
	st.driver = csidriver.New(csidriver.Config{Name: st.name, Dir: dir, Node: s.Kubelet.Node, Max: 50})
	object := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: st.name},
		Spec: storagev1.CSIDriverSpec{AttachRequired: ptr(true),
			VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent,
				storagev1.VolumeLifecycleEphemeral}}}
	if edit != nil {
		edit(&object.Spec)
	}
	api := s.Cluster.Client.StorageV1()
	if _, err := api.CSIDrivers().Create(s.t.Context(), object, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	class := &storagev1.StorageClass{
		ObjectMeta:           metav1.ObjectMeta{Name: st.name},
		Provisioner:          st.name,
		AllowVolumeExpansion: ptr(true),
	}
	if _, err := api.StorageClasses().Create(s.t.Context(), class, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	attaching, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); st.attach(attaching) }()
	s.t.Cleanup(func() {
		// The namespace is cleaned up after this: its pods need the driver.
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		st.clear(ctx)
		stop()
		<-done
		st.driver.Stop()
		if err := api.CSIDrivers().Delete(ctx, st.name, metav1.DeleteOptions{}); err != nil {
			s.t.Error(err)
		}
		if err := api.StorageClasses().Delete(ctx, st.name, metav1.DeleteOptions{}); err != nil {
			s.t.Error(err)
		}
		st.mu.Lock()
		defer st.mu.Unlock()
		for _, w := range st.wrong {
			s.t.Error(w)
		}
	})
	if err := st.driver.Start(); err != nil {
		s.t.Fatal(err)
	}
	if err := st.driver.Register(filepath.Join(s.Kubelet.Root, "plugins_registry")); err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	if reported, err := st.driver.Registrations(ctx); err != nil || !reported.PluginRegistered {
		s.t.Fatalf("the driver was reported %v, %v", reported, err)
	}
	return st
}

// clear deletes the namespace's pods while the driver can still unmount their volumes.
func (st *storage) clear(ctx context.Context) {
	at := int64(1)
	pods := st.Cluster.Client.CoreV1().Pods(st.ns)
	if err := st.Cluster.Client.AppsV1().StatefulSets(st.ns).DeleteCollection(ctx, metav1.DeleteOptions{},
		metav1.ListOptions{}); err != nil {
		st.t.Error(err)
	}
	if err := pods.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &at},
		metav1.ListOptions{}); err != nil {
		st.t.Error(err)
	}
	for ctx.Err() == nil {
		left, err := pods.List(ctx, metav1.ListOptions{})
		if err == nil && len(left.Items) == 0 && len(st.mounts()) == 0 && len(st.attachments(ctx)) == 0 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	st.t.Errorf("left of driver %s: mounts %v, attachments %v", st.name, st.mounts(),
		st.attachments(context.Background()))
}

func (st *storage) attachments(ctx context.Context) (names []string) {
	list, err := st.Cluster.Client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return []string{err.Error()}
	}
	for _, a := range list.Items {
		if a.Spec.Attacher == st.name {
			names = append(names, a.Name)
		}
	}
	return names
}

// attach runs the attacher until ctx ends.
func (st *storage) attach(ctx context.Context) {
	api := st.Cluster.Client.StorageV1().VolumeAttachments()
	for ctx.Err() == nil {
		w, err := api.Watch(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		for e := range w.ResultChan() {
			a, ok := e.Object.(*storagev1.VolumeAttachment)
			if !ok || a.Spec.Attacher != st.name || e.Type == "DELETED" {
				continue
			}
			if err := st.answer(ctx, a.Name); err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
				st.blame("answer attachment %s: %v", a.Name, err)
			}
		}
	}
}

func (st *storage) blame(format string, args ...any) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.wrong = append(st.wrong, fmt.Sprintf(format, args...))
}

// answer attaches or detaches the volume of one VolumeAttachment.
func (st *storage) answer(ctx context.Context, name string) error {
	api := st.Cluster.Client.StorageV1().VolumeAttachments()
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		a, err := api.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		pv, err := st.Cluster.Client.CoreV1().PersistentVolumes().Get(ctx, *a.Spec.Source.PersistentVolumeName,
			metav1.GetOptions{})
		if err != nil {
			return err
		}
		handle := pv.Spec.CSI.VolumeHandle
		held := slices.Contains(a.Finalizers, attacherFinalizer)
		st.mu.Lock()
		refuse := st.refuse
		st.mu.Unlock()
		switch {
		case a.DeletionTimestamp != nil && held:
			// The volume is detached from here on: it must not be mounted.
			if at := st.mountsOf(handle); len(at) > 0 {
				st.blame("volume %s is detached while it is mounted at %v", handle, at)
			}
			a.Finalizers = slices.DeleteFunc(a.Finalizers, func(f string) bool { return f == attacherFinalizer })
			if _, err := api.Update(ctx, a, metav1.UpdateOptions{}); err != nil {
				return err
			}
			st.count(st.detached, handle)
		case a.DeletionTimestamp != nil || a.Status.Attached:
		case refuse != nil:
			a.Status.AttachError = refuse.DeepCopy()
			a.Status.AttachError.Time = metav1.Now()
			_, err = api.UpdateStatus(ctx, a, metav1.UpdateOptions{})
			return err
		case !held:
			a.Finalizers = append(a.Finalizers, attacherFinalizer)
			_, err = api.Update(ctx, a, metav1.UpdateOptions{}) // its watch event leads to the next case
			return err
		default:
			a.Status = storagev1.VolumeAttachmentStatus{
				Attached:           true,
				AttachmentMetadata: map[string]string{"lun": "7"},
			}
			if _, err := api.UpdateStatus(ctx, a, metav1.UpdateOptions{}); err != nil {
				return err
			}
			st.count(st.attached, handle)
		}
		return nil
	})
}

func (st *storage) count(in map[string]int, handle string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	in[handle]++
}

// times is how often a volume was attached and detached.
func (st *storage) times(handle string) (attached, detached int) {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.attached[handle], st.detached[handle]
}

// handle is the ID of the volume of a claim. With this prefix the driver creates the volume
// at its first use.
func (st *storage) handle(claim string) string { return "test-" + st.ns + "-" + claim }

func (st *storage) unique(claim string) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName("kubernetes.io/csi/" + st.name + "^" + st.handle(claim))
}

// volume creates a volume and, unless others is set, its claim.
func (st *storage) volume(claim string, others bool, edit func(*corev1.PersistentVolume)) {
	st.t.Helper()
	size := corev1.ResourceList{corev1.ResourceStorage: quantity("1Gi")}
	core := st.Cluster.Client.CoreV1()
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: st.ns + "-" + claim},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Capacity: size,
			StorageClassName:              st.name,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:                      &corev1.ObjectReference{Namespace: st.ns, Name: claim},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver:       st.name,
				VolumeHandle: st.handle(claim),
			}}}}
	if edit != nil {
		edit(pv)
	}
	if _, err := core.PersistentVolumes().Create(st.t.Context(), pv, metav1.CreateOptions{}); err != nil {
		st.t.Fatal(err)
	}
	st.t.Cleanup(func() {
		if err := core.PersistentVolumes().Delete(context.Background(), pv.Name, metav1.DeleteOptions{}); err != nil {
			st.t.Error(err)
		}
	})
	if others {
		return
	}
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: claim},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: pv.Spec.AccessModes,
			VolumeName: pv.Name, VolumeMode: pv.Spec.VolumeMode, StorageClassName: &st.name,
			Resources: corev1.VolumeResourceRequirements{Requests: size}}}
	if _, err := core.PersistentVolumeClaims(st.ns).Create(st.t.Context(), c, metav1.CreateOptions{}); err != nil {
		st.t.Fatal(err)
	}
	st.claim(claim, "bound", func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Phase == corev1.ClaimBound })
}

// claim waits until a claim is as wanted.
func (st *storage) claim(
	name, what string, want func(*corev1.PersistentVolumeClaim) bool,
) *corev1.PersistentVolumeClaim {
	st.t.Helper()
	var got *corev1.PersistentVolumeClaim
	st.until("claim "+name+" to be "+what, func() (string, bool) {
		c, err := st.Cluster.Client.CoreV1().PersistentVolumeClaims(st.ns).Get(st.t.Context(), name,
			metav1.GetOptions{})
		if err != nil {
			return err.Error(), false
		}
		got = c
		return fmt.Sprintf("%+v", c.Status), want(c)
	})
	return got
}

// claimed mounts a claim.
func claimed(claim, path string) spec {
	return mounted(claim, path,
		corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}})
}

// write writes a file into a volume's directory, without the agent and the driver.
func (st *storage) write(claim, file, text string) {
	st.t.Helper()
	dir := st.driver.Data(st.handle(claim))
	if err := os.MkdirAll(dir, 0o777); err != nil {
		st.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
		st.t.Fatal(err)
	}
}

// mountsOf are the mount points of a volume on the node.
func (st *storage) mountsOf(handle string) (at []string) {
	list, err := mountinfo.GetMounts(nil)
	if err != nil {
		return []string{err.Error()}
	}
	for _, m := range list {
		if strings.Contains(m.Root+"/", "/volumes/"+handle+"/") {
			at = append(at, m.Mountpoint)
		}
	}
	return at
}

// mounts are all mounts of the driver.
func (st *storage) mounts() (at []string) {
	list, err := mountinfo.GetMounts(nil)
	if err != nil {
		return []string{err.Error()}
	}
	for _, m := range list {
		if strings.Contains(m.Root, "/"+st.ns+"/volumes/") || strings.Contains(m.Mountpoint, "/csi/"+st.name+"/") {
			at = append(at, m.Mountpoint)
		}
	}
	return at
}

// records are the directories of volumes that are left on the disk.
func (st *storage) records(claims []string) (left []string) {
	for _, c := range claims {
		for _, pattern := range []string{fmt.Sprintf("%s/%x", st.name, sha256.Sum256([]byte(st.handle(c)))),
			"volumeDevices/" + st.ns + "-" + c, "volumeDevices/*/" + st.ns + "-" + c} {
			found, err := filepath.Glob(filepath.Join(st.Kubelet.Root, "plugins/kubernetes.io/csi", pattern))
			if err != nil {
				st.t.Fatal(err)
			}
			left = append(left, found...)
		}
	}
	return left
}

// inUse reports whether the volume is in volumesInUse of the node's status, and whether it is in
// volumesAttached.
func (st *storage) inUse(claim string) (used, attached bool) {
	st.t.Helper()
	n := st.nodeObject()
	return slices.Contains(n.Status.VolumesInUse, st.unique(claim)), slices.ContainsFunc(n.Status.VolumesAttached,
		func(a corev1.AttachedVolume) bool { return a.Name == st.unique(claim) })
}

// held waits until the volume is in volumesInUse, which the agent sets, and in
// volumesAttached, which the controller sets.
func (st *storage) held(claim string) {
	st.t.Helper()
	st.until("the volume of "+claim+" to be in use and attached", func() (string, bool) {
		used, attached := st.inUse(claim)
		return fmt.Sprintf("in use: %v, attached: %v", used, attached), used && attached
	})
}

// unused waits until nothing of the volumes is left: not mounted, no record, not in
// use, not attached.
func (st *storage) unused(claims ...string) {
	st.t.Helper()
	st.until("the volumes to be off the node", func() (string, bool) {
		saw := map[string]bool{}
		for _, c := range claims {
			used, attached := st.inUse(c)
			if used {
				saw[c+" is in use"] = true
			}
			if attached {
				saw[c+" is attached"] = true
			}
			for _, at := range st.mountsOf(st.handle(c)) {
				saw[c+" is mounted at "+at] = true
			}
		}
		for _, r := range st.records(claims) {
			saw["left: "+r] = true
		}
		return strings.Join(slices.Sorted(maps.Keys(saw)), ", "), len(saw) == 0
	})
}

// mergePatch encodes a merge patch.
func mergePatch(t *testing.T, value any) []byte {
	t.Helper()
	out, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// grow does the part of the external resizer: the volume gets the new size, and the node still has to expand it.
func (st *storage) grow(claim, size string) {
	st.t.Helper()
	core := st.Cluster.Client.CoreV1()
	storage := map[string]any{"storage": size}
	ctx := st.t.Context()
	_, err := core.PersistentVolumeClaims(st.ns).Patch(ctx, claim, types.MergePatchType,
		mergePatch(st.t, map[string]any{"spec": map[string]any{"resources": map[string]any{"requests": storage}}}),
		metav1.PatchOptions{})
	if err != nil {
		st.t.Fatal(err)
	}
	_, err = core.PersistentVolumes().Patch(ctx, st.ns+"-"+claim, types.MergePatchType,
		mergePatch(st.t, map[string]any{"spec": map[string]any{"capacity": storage}}), metav1.PatchOptions{})
	if err != nil {
		st.t.Fatal(err)
	}
	_, err = core.PersistentVolumeClaims(st.ns).Patch(ctx, claim, types.MergePatchType,
		mergePatch(st.t, map[string]any{"status": map[string]any{
			"allocatedResources":        storage,
			"allocatedResourceStatuses": map[string]any{"storage": corev1.PersistentVolumeClaimNodeResizePending}}}),
		metav1.PatchOptions{}, "status")
	if err != nil {
		st.t.Fatal(err)
	}
}
