package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson/test/kit/apiproxy"
)

// The bounds for volumes.
var (
	fileP99     = Bound{"F14", "ConfigMap changed→file changed, p99, 110 pods", 1000, "ms"}
	watchesOver = Bound{"F14", "watches of ConfigMaps and Secrets over upstream's one for each object in use", 0,
		"watches"}
	mountedAfter = Bound{"V1", "arrival→last mount, token, configMap and secret, p50", 10, "ms"}
)

// filePods is the number of pods that mount ConfigMaps: a full node.
const filePods = 110

const (
	sharedMap = "shared"
	ownMaps   = 10 // further ConfigMaps, each shared by filePods/ownMaps pods
	mapKey    = "value"
)

// follower returns a pod that mounts ConfigMaps.
func follower(node, name string, maps ...string) *corev1.Pod {
	p := withoutToken(pausePod(node, name))
	for _, m := range maps {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: m, VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: m}}}})
		c := &p.Spec.Containers[0]
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: m, MountPath: "/" + m})
	}
	return p
}

func ownMap(i int) string { return fmt.Sprintf("own-%d", i%ownMaps) }

// playFiles changes ConfigMaps that the pods of a full node mount, and measures when the files change.
func playFiles(ctx context.Context, r *run) error {
	by, watches := map[string]Samples{}, map[string]float64{}
	for _, c := range r.contenders() {
		err := r.onFakeStage(ctx, c, fakeOptions{}, func(ctx context.Context, s *fakeStage) error {
			if err := s.fillWithFollowers(ctx); err != nil {
				return err
			}
			watches[c.who] = float64(watchesOf(s.proxy.Counts(), "configmaps") + watchesOf(s.proxy.Counts(), "secrets"))
			r.say("%s: %d pods follow %d ConfigMaps by %.0f watches", c.who, filePods, 1+ownMaps, watches[c.who])
			rounds := 10
			if c.who == Upstream {
				rounds = 1 // its files change with the next sync of a pod, a minute or more later
			}
			for i := range rounds {
				name := sharedMap
				if i%2 == 1 {
					name = ownMap(i)
				}
				took, err := s.change(ctx, name, fmt.Sprintf("%s-%d", c.who, i))
				if err != nil {
					return err
				}
				by[c.who] = append(by[c.who], took...)
			}
			return nil
		})
		if err != nil {
			return err
		}
		r.say("%s: changed→file p50 %.1f ms, p99 %.1f ms", c.who, ms(by[c.who].Median()), ms(by[c.who].P(0.99)))
	}
	r.report.Times("F14", "ConfigMap changed→file changed, 110 pods", onFakes, by)
	r.report.Numbers("F14", "watches of ConfigMaps and Secrets, 110 pods", onFakes, "", watches)
	r.report.Hold(fileP99, ms(by[Ours].P(0.99)), "")
	upstreams := float64(1 + ownMaps) // by its rule: one watch for each object in use
	if n, ok := watches[Upstream]; ok {
		upstreams = n
	}
	r.report.Hold(watchesOver, max(0, watches[Ours]-upstreams),
		fmt.Sprintf("%.0f beside %.0f", watches[Ours], upstreams))
	return nil
}

func watchesOf(counts map[apiproxy.Key]int, resource string) int {
	return counts[apiproxy.Key{Verb: "watch", Resource: resource}]
}

func (s *fakeStage) putMap(ctx context.Context, name, value string) error {
	maps := s.client.CoreV1().ConfigMaps("default")
	if m, err := maps.Get(ctx, name, metav1.GetOptions{}); err == nil {
		m.Data = map[string]string{mapKey: value}
		_, err = maps.Update(ctx, m, metav1.UpdateOptions{})
		return err
	}
	_, err := maps.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Data:       map[string]string{mapKey: value},
	}, metav1.CreateOptions{})
	return err
}

// fillWithFollowers starts pods that mount the shared ConfigMap and one that fewer pods share.
func (s *fakeStage) fillWithFollowers(ctx context.Context) error {
	ctx, cancel := within(ctx, 10*time.Minute)
	defer cancel()
	if err := s.putMap(ctx, sharedMap, "old"); err != nil {
		return err
	}
	for i := range ownMaps {
		if err := s.putMap(ctx, ownMap(i), "old"); err != nil {
			return err
		}
	}
	var pods []*corev1.Pod
	for i := range filePods {
		pods = append(pods, follower(s.node, fmt.Sprintf("file-%03d", i), sharedMap, ownMap(i)))
	}
	names, err := create(ctx, s.client, pods)
	if err != nil {
		return err
	}
	_, err = s.watch.until(ctx, "ready", names, isReady)
	return err
}

// change changes a ConfigMap and returns how long each of its files took to have the new content.
func (s *fakeStage) change(ctx context.Context, name, value string) (took Samples, err error) {
	ctx, cancel := within(ctx, 5*time.Minute)
	defer cancel()
	dirs, err := filepath.Glob(filepath.Join(s.kubelet.Root, "pods/*/volumes/kubernetes.io~configmap", name))
	if err != nil {
		return nil, err
	}
	if want := filePods; name != sharedMap && len(dirs) != filePods/ownMaps || name == sharedMap && len(dirs) != want {
		return nil, fmt.Errorf("change ConfigMap %s: %d pods have it mounted", name, len(dirs))
	}
	// The watcher is buffered, because the kernel may report changes while this goroutine is busy.
	w, err := fsnotify.NewBufferedWatcher(16 * filePods)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	for _, dir := range dirs {
		if err := w.Add(dir); err != nil {
			return nil, err
		}
	}
	began := time.Now()
	if err := s.putMap(ctx, name, value); err != nil {
		return nil, err
	}
	for left := dirs; len(left) > 0; {
		select {
		case <-ctx.Done():
			return took, fmt.Errorf("wait for %d files of ConfigMap %s: %w", len(left), name, context.Cause(ctx))
		case err := <-w.Errors:
			return took, err
		case ev := <-w.Events:
			at := time.Now()
			dir := filepath.Dir(ev.Name)
			if i := slices.Index(left, dir); i >= 0 && strings.HasSuffix(ev.Name, "/..data") &&
				ev.Has(fsnotify.Create) {
				got, err := os.ReadFile(filepath.Join(dir, mapKey))
				if err != nil {
					return took, err
				}
				if string(got) == value {
					took = append(took, at.Sub(began))
					left = slices.Delete(slices.Clone(left), i, i+1)
				}
			}
		}
	}
	return took, nil
}

// playMount starts pods with a token, a configMap and a secret one after the other, and measures when the last volume
// of each had its files. Another pod uses the same objects, so they are in the kubelet's cache.
func playMount(ctx context.Context, r *run) error {
	by := map[string]Samples{}
	c := r.contenders()[0] // only ours reports the arrival of a pod
	err := r.onFakeStage(ctx, c, fakeOptions{}, func(ctx context.Context, s *fakeStage) error {
		if err := s.putMap(ctx, "conf", "x"); err != nil {
			return err
		}
		if _, err := s.client.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "hidden"},
			Data:       map[string][]byte{"a": []byte("b")},
		}, metav1.CreateOptions{}); err != nil {
			return err
		}
		if _, err := s.mounted(ctx, "holder"); err != nil {
			return err
		}
		for i := range max(50, r.cfg.Runs) {
			name := fmt.Sprintf("mount-%03d", i)
			took, err := s.mounted(ctx, name)
			if err != nil {
				return err
			}
			by[c.who] = append(by[c.who], took)
			if err := remove(ctx, s.client, []string{name}); err != nil {
				return err
			}
			if _, err := s.watch.until(ctx, "gone", []string{name}, isGone); err != nil {
				return err
			}
			if err := pause(ctx, breath); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.say("arrival→last mount p50 %.1f ms, p99 %.1f ms", ms(by[c.who].Median()), ms(by[c.who].P(0.99)))
	r.report.Times("V1", "arrival→last mount, token, configMap and secret known", onFakes, by)
	r.report.Hold(mountedAfter, ms(by[c.who].Median()), fmt.Sprintf("p99 %.1f ms", ms(by[c.who].P(0.99))))
	return nil
}

// mounted starts a pod and returns the time from its arrival, as the kubelet reports it, until the last of its volumes
// had its files.
func (s *fakeStage) mounted(ctx context.Context, name string) (time.Duration, error) {
	ctx, cancel := within(ctx, time.Minute)
	defer cancel()
	p := withToken(follower(s.node, name, "conf"))
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{
		Name:         "hidden",
		VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "hidden"}},
	})
	main := &p.Spec.Containers[0]
	main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: "hidden", MountPath: "/hidden"})
	if err := createOne(ctx, s.client, p); err != nil {
		return 0, err
	}
	if _, err := s.watch.until(ctx, "ready", []string{name}, isReady); err != nil {
		return 0, err
	}
	text, err := s.kubelet.Get(ctx, "/debug/keelson/pods/default/"+name)
	if err != nil {
		return 0, err
	}
	var reported struct {
		UID     string    `json:"uid"`
		Arrived time.Time `json:"arrived"`
	}
	if err := json.Unmarshal([]byte(text), &reported); err != nil {
		return 0, fmt.Errorf("read what the kubelet says of pod %s: %w", name, err)
	}
	// The time of the files is from the file system, with the resolution of the kernel's coarse clock.
	have, err := filepath.Glob(filepath.Join(s.kubelet.Root, "pods", reported.UID, "volumes/*/*/..data"))
	if err != nil || len(have) != len(p.Spec.Volumes) {
		return 0, fmt.Errorf("look for volumes of pod %s: %d of %d are there: %v", name, len(have), len(p.Spec.Volumes),
			err)
	}
	var took time.Duration
	for _, link := range have {
		fi, err := os.Lstat(link)
		if err != nil {
			return 0, err
		}
		took = max(took, fi.ModTime().Sub(reported.Arrived))
	}
	return took, nil
}
