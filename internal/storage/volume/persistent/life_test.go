package persistent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
	"keelson/internal/storage/mount"
	"keelson/internal/storage/volume"
	"keelson/test/kit/eventlog"
)

const pluginName = "example.com/model"

// world is a node, its disk, and the attach/detach controller. What is staged and published
// outlives agents. Violations of the protocol are recorded.
type world struct {
	t    *testing.T
	root string
	rng  *rand.Rand // guarded by mu

	mu        sync.Mutex
	calm      bool              // nothing fails any more
	records   map[string]Device // what Devices finds
	staged    map[string]bool
	published map[string]string // by place: ID
	busy      map[string]bool   // by ID: a step is active
	node      v1.NodeStatus
	wrong     []string

	// The running agent.
	vols *volume.Manager
	last *Volumes
	stop func()
}

func (w *world) blame(format string, args ...any) {
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

// The volumes: attached ones, one that is not attached, and a ReadWriteOncePod one.
var claimNames = []string{"attached", "shared", "plain", "alone"}

func traitsOf(name string) Traits {
	return Traits{ID: pluginName + "/" + name, Attach: name != "plain"}
}

func (w *world) Claim(_ context.Context, ns, name string) (*v1.PersistentVolumeClaim, error) {
	if !slices.Contains(claimNames, name) {
		return nil, apierrors.NewNotFound(v1.Resource("persistentvolumeclaims"), name)
	}
	return &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID(name)},
		Spec:       v1.PersistentVolumeClaimSpec{VolumeName: name},
		Status:     v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
	}, nil
}

func (w *world) Volume(_ context.Context, name string) (*v1.PersistentVolume, error) {
	pv := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1.PersistentVolumeSpec{ClaimRef: &v1.ObjectReference{UID: types.UID(name)}},
	}
	if name == "alone" {
		pv.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
	}
	return pv, nil
}

func (w *world) PatchClaimStatus(context.Context, string, string, []byte) (*v1.PersistentVolumeClaim, error) {
	return nil, errors.New("expansion failed")
}

// model is the plugin: its steps take time and may fail before or after their effect, with or
// without an Unknown error.
type model struct{ w *world }

func (model) Name() string                                       { return pluginName }
func (model) Serves(s Spec) bool                                 { return s.PV != nil }
func (model) Describe(_ context.Context, s Spec) (Traits, error) { return traitsOf(s.PV.Name), nil }

// step is one call with random duration, effect and error.
func (m model) step(ctx context.Context, what, id string, effect func()) error {
	w := m.w
	w.mu.Lock()
	if w.busy[id] {
		w.blame("%s of %s while another step is under way", what, id)
	}
	w.busy[id] = true
	takes := time.Duration(w.rng.IntN(3000)) * time.Millisecond
	fate := w.rng.IntN(8)
	if w.calm {
		fate = 7
	}
	if fate == 0 {
		takes = time.Minute // it hangs
	}
	w.mu.Unlock()
	var err error
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		err = Unknown(ctx.Err())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy[id] = false
	switch fate {
	case 1:
		return errors.Join(err, errors.New("refused"))
	case 2:
		return Unknown(errors.New("cut off before"))
	case 3:
		effect()
		return Unknown(errors.New("cut off after"))
	case 4:
		if err != nil { // the caller has given up; the effect may have happened
			return err
		}
	}
	effect()
	return err
}

// attached reports whether the volume is attached.
func (w *world) attached(id string) bool {
	return slices.ContainsFunc(w.node.VolumesAttached, func(a v1.AttachedVolume) bool { return string(a.Name) == id })
}

func (m model) Stage(ctx context.Context, r Request) error {
	w, tr := m.w, traitsOf(r.PV.Name)
	w.mu.Lock()
	if tr.Attach && !w.attached(tr.ID) {
		w.blame("staging of %s, which is not attached", tr.ID)
	}
	_, had := w.records[tr.ID]
	w.records[tr.ID] = Device{Traits: tr, Name: r.PV.Name}
	w.mu.Unlock()
	err := m.step(ctx, "staging", tr.ID, func() { w.staged[tr.ID] = true })
	switch {
	case err == nil || IsUnknown(err):
		return err
	case had:
		return Unknown(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.records, tr.ID)
	return err
}

func (m model) Unstage(ctx context.Context, d Device) error {
	w := m.w
	w.mu.Lock()
	for place, id := range w.published {
		if id == d.ID {
			w.blame("unstaging of %s, which is published at %s", id, place)
		}
	}
	w.mu.Unlock()
	if err := m.step(ctx, "unstaging", d.ID, func() { delete(w.staged, d.ID) }); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.records, d.ID)
	return nil
}

const recordName = "record"

func (m model) Publish(ctx context.Context, r Request) (Published, error) {
	w, tr := m.w, traitsOf(r.PV.Name)
	w.mu.Lock()
	if !w.staged[tr.ID] {
		w.blame("publishing of %s, which is not staged", tr.ID)
	}
	for place, id := range w.published {
		if r.PV.Name == "alone" && id == tr.ID && place != r.Place.Path {
			w.blame("%s is published to a second pod: %s", id, place)
		}
	}
	w.mu.Unlock()
	_, err := os.Lstat(filepath.Join(r.Place.Path, recordName))
	had := err == nil
	if err := errors.Join(os.MkdirAll(r.Place.Path, 0o750),
		os.WriteFile(filepath.Join(r.Place.Path, recordName), []byte(r.PV.Name), 0o600)); err != nil {
		return Published{}, err
	}
	err = m.step(ctx, "publishing", tr.ID, func() { w.published[r.Place.Path] = tr.ID })
	switch {
	case err == nil || IsUnknown(err):
	case had:
		err = Unknown(err)
	default:
		err = errors.Join(err, os.RemoveAll(r.Place.Path))
	}
	return Published{Path: r.Place.Path}, err
}

func (m model) Unpublish(ctx context.Context, p volume.Place) error {
	name, err := os.ReadFile(filepath.Join(p.Path, recordName))
	if errors.Is(err, fs.ErrNotExist) {
		return os.RemoveAll(p.Path)
	}
	if err != nil {
		return err
	}
	if err := m.step(ctx, "unpublishing", traitsOf(string(name)).ID,
		func() { delete(m.w.published, p.Path) }); err != nil {
		return err
	}
	return os.RemoveAll(p.Path)
}

func (m model) Devices() ([]Device, error) {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	var out []Device
	for _, d := range m.w.records {
		out = append(out, d)
	}
	return out, nil
}

func (m model) DeviceOf(p volume.Place) (Traits, error) {
	name, err := os.ReadFile(filepath.Join(p.Path, recordName))
	if errors.Is(err, fs.ErrNotExist) {
		return Traits{}, nil
	}
	return traitsOf(string(name)), err
}

// status is the node status last seen by the agent.
func (w *world) status() v1.NodeStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	return *w.node.DeepCopy()
}

// start starts an agent on the existing state.
func (w *world) start() {
	guard, log := mount.NewGuard(), slog.New(slog.DiscardHandler)
	poke := make(chan struct{}, 1)
	poke <- struct{}{}
	w.last = New(Config{
		RootDir: w.root,
		Plugins: []Plugin{model{w}},
		API:     w,
		Guard:   guard,
		Events:  eventlog.Discard{},
		Node:    w.status,
		Attach:  true,
		Recheck: time.Hour,
		Log:     log,
		OnInUse: func() {
			select {
			case poke <- struct{}{}:
			default:
			}
		},
		Again: func(uid types.UID) { w.vols.Again(uid) },
	})
	w.vols = volume.New(volume.Config{
		RootDir:           w.root,
		Kinds:             w.last.Kinds(),
		Guard:             guard,
		Events:            eventlog.Discard{},
		OnChange:          func(types.UID) {},
		Log:               log,
		MaySwap:           func() (bool, error) { return false, nil },
		RecursiveReadOnly: func(*v1.Pod) bool { return true },
	})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	last, vols := w.last, w.vols
	wg.Go(func() { _ = last.Run(ctx) })
	wg.Go(func() { _ = vols.Run(ctx) })
	wg.Go(func() { // propagation of the node status
		for {
			select {
			case <-ctx.Done():
				return
			case <-poke:
			}
			inUse := last.InUse()
			select {
			case <-ctx.Done():
				return
			case <-time.After(50 * time.Millisecond):
			}
			w.mu.Lock()
			w.node.VolumesInUse = inUse
			w.mu.Unlock()
			last.NodeChanged()
		}
	})
	w.stop = func() { cancel(); wg.Wait() }
}

// control is the attach/detach controller: it attaches wanted volumes, and detaches those that no
// pod wants and that are not in volumesInUse.
func (w *world) control(ctx context.Context, wanted func() map[string]bool) {
	for ctx.Err() == nil {
		time.Sleep(300 * time.Millisecond)
		want := wanted()
		w.mu.Lock()
		var now []v1.AttachedVolume
		for _, name := range claimNames {
			tr := traitsOf(name)
			if !tr.Attach {
				continue
			}
			used := slices.Contains(w.node.VolumesInUse, v1.UniqueVolumeName(tr.ID))
			switch had := w.attached(tr.ID); {
			case want[name] || had && used:
				now = append(now, v1.AttachedVolume{Name: v1.UniqueVolumeName(tr.ID)})
			case had:
				if w.staged[tr.ID] {
					w.blame("%s is not in volumesInUse while it is staged", tr.ID)
				}
				for place, id := range w.published {
					if id == tr.ID {
						w.blame("%s is not in volumesInUse while it is published at %s", tr.ID, place)
					}
				}
			}
		}
		w.node.VolumesAttached = now
		w.mu.Unlock()
		w.last.NodeChanged()
	}
}

func podOf(name string, claims []string) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c"}}},
	}
	for _, c := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{
			Name:         c,
			VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: c}},
		})
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, v1.VolumeMount{
			Name:      c,
			MountPath: "/" + c,
		})
	}
	return p
}

// Random histories of pods, failures and restarts: a volume is staged before it is published and
// unstaged after, one step at a time; it is in volumesInUse as long as anything of it may exist;
// pods get their volumes when nothing fails any more, and when they are gone nothing is left.
func TestRandomHistories(t *testing.T) {
	histories := 60
	if testing.Short() {
		histories = 10
	}
	for seed := range uint64(histories) {
		synctest.Test(t, func(t *testing.T) { playHistory(t, seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func playHistory(t *testing.T, seed uint64) {
	root := t.TempDir()
	w := &world{
		t:         t,
		root:      root,
		rng:       rand.New(rand.NewPCG(seed, 1)),
		records:   map[string]Device{},
		staged:    map[string]bool{},
		published: map[string]string{},
		busy:      map[string]bool{},
	}
	own := rand.New(rand.NewPCG(seed, 2))
	live := map[string]*v1.Pod{} // what the API server has
	var mu sync.Mutex
	terminating := map[string]bool{} // released, and not gone yet
	pods := []*v1.Pod{
		podOf("a", claimNames[:2]),
		podOf("b", []string{"shared", "plain"}),
		podOf("c", []string{"alone", "shared"}),
		podOf("d", []string{"alone", "plain"}),
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w.start()
	w.last.Settle()
	controlled := make(chan struct{})
	go func() {
		defer close(controlled)
		w.control(ctx, func() map[string]bool {
			mu.Lock()
			defer mu.Unlock()
			out := map[string]bool{}
			for _, p := range live {
				for _, v := range p.Spec.Volumes {
					out[v.PersistentVolumeClaim.ClaimName] = true
				}
			}
			return out
		})
	}()
	set := func(p *v1.Pod, on bool) {
		mu.Lock()
		defer mu.Unlock()
		if on {
			live[p.Name] = p
		} else {
			delete(live, p.Name)
		}
	}
	settle := func() {
		for _, p := range pods {
			if done, _ := w.vols.Released(p.UID); terminating[p.Name] && done {
				delete(terminating, p.Name)
			}
		}
	}
	for range 40 {
		settle()
		p := pods[own.IntN(len(pods))]
		switch own.IntN(7) {
		case 0, 1, 2:
			if live[p.Name] == nil && !terminating[p.Name] {
				set(p, true)
				w.vols.Want(p)
			}
		case 3, 4:
			if live[p.Name] != nil {
				set(p, false)
				terminating[p.Name] = true
				w.vols.Release(pod.RefOf(p))
			}
		case 5:
			synctest.Wait()
			w.stop()
			w.start()
			for _, p := range pods {
				switch {
				case live[p.Name] != nil:
					w.vols.Want(p)
				default: // an orphan, or one that was terminating
					terminating[p.Name] = true
					w.vols.Release(pod.RefOf(p))
				}
			}
			w.last.Settle()
		}
		time.Sleep(time.Duration(own.IntN(4000)) * time.Millisecond)
	}

	w.mu.Lock()
	w.calm = true
	w.mu.Unlock()
	// If two pods want the ReadWriteOncePod volume, one of them waits.
	if live["c"] != nil && live["d"] != nil {
		set(pods[3], false)
		w.vols.Release(pod.RefOf(pods[3]))
	}
	time.Sleep(20 * time.Minute)
	synctest.Wait()
	for name := range live {
		if s := w.vols.State(types.UID(name)); !s.Ready {
			t.Errorf("pod %s never got its volumes: %v", name, s.Err)
		}
	}
	for _, p := range pods {
		set(p, false)
		w.vols.Release(pod.RefOf(p))
	}
	time.Sleep(20 * time.Minute)
	synctest.Wait()
	w.mu.Lock()
	if len(w.staged)+len(w.published)+len(w.records) > 0 {
		t.Errorf("left: staged %v, published %v, records %v", w.staged, w.published, w.records)
	}
	if len(w.node.VolumesInUse)+len(w.node.VolumesAttached) > 0 {
		t.Errorf("at the end: in use %v, attached %v", w.node.VolumesInUse, w.node.VolumesAttached)
	}
	if len(w.wrong) > 0 {
		t.Errorf("what must not happen:\n%s", strings.Join(w.wrong, "\n"))
	}
	w.mu.Unlock()
	w.last.mu.Lock()
	if len(w.last.devices)+len(w.last.holds) > 0 {
		t.Errorf("still kept: %d devices, %d holds", len(w.last.devices), len(w.last.holds))
	}
	w.last.mu.Unlock()
	cancel()
	<-controlled
	w.stop()
}
