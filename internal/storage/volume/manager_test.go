package volume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/panics"
	"keelson/internal/pods/pod"
	"keelson/internal/storage/mount"
	"keelson/test/kit/eventlog"
	"keelson/test/kit/parity"
)

// fakeKind serves emptyDir volumes: Prepare creates a directory, Release removes it. It fails or
// hangs for names of volumes as configured.
type fakeKind struct {
	mu       sync.Mutex
	fail     map[string]error
	hang     map[string]bool
	renew    time.Duration
	now      func() time.Time
	prepared []string // name and time since the start
	began    time.Time
	inputs   Inputs
	measured int
	guard    *mount.Guard  // guards calls that hang
	silent   chan struct{} // calls hang until this is closed; nil: none hang
	during   func()        // called once, during the next attempt
	panics   int           // number of calls of Plugin that panic
	serves   int           // number of calls of Serves that panic
}

func newFakeKind() *fakeKind {
	return &fakeKind{fail: map[string]error{}, hang: map[string]bool{}, began: time.Now(), now: time.Now}
}

// backsOff checks the back-off between attempts for a volume.
func (k *fakeKind) backsOff(t *testing.T, name string) {
	t.Helper()
	var gaps []time.Duration
	last := time.Duration(-1)
	for _, at := range k.attempts(name) {
		d, err := time.ParseDuration(at)
		if err != nil {
			t.Fatal(err)
		}
		if last >= 0 {
			gaps = append(gaps, d-last)
		}
		last = d
	}
	want := []time.Duration{
		500 * time.Millisecond,
		time.Second,
		2 * time.Second,
		4 * time.Second,
		8 * time.Second,
		16 * time.Second,
		32 * time.Second,
		64 * time.Second,
		122 * time.Second,
		122 * time.Second,
	}
	if len(gaps) < len(want) || !slices.Equal(gaps[:len(want)], want) {
		t.Errorf("attempts are apart by %v, want %v", gaps, want)
	}
}

func (k *fakeKind) Plugin() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.panics > 0 {
		k.panics--
		panic("no name")
	}
	return "test/fake"
}

func (k *fakeKind) Serves(v *v1.Volume) bool {
	if k.serves > 0 {
		k.serves--
		panic("no kind")
	}
	return v.EmptyDir != nil
}

func (k *fakeKind) Inputs(*v1.Volume) Inputs { return k.inputs }

func (k *fakeKind) Prepare(ctx context.Context, r Request) (Ready, error) {
	k.mu.Lock()
	k.prepared = append(k.prepared, fmt.Sprintf("%s %v", r.Name, time.Since(k.began)))
	err, hang := k.fail[r.Name], k.hang[r.Name]
	ready := Ready{Path: r.Path}
	if k.renew > 0 {
		ready.RenewAt = k.now().Add(k.renew)
	}
	silent := k.silent
	during := k.during
	k.during = nil
	k.mu.Unlock()
	if during != nil {
		during()
	}
	if hang {
		<-ctx.Done()
		return Ready{}, fmt.Errorf("hung: %w", ctx.Err())
	}
	if err != nil {
		return Ready{}, err
	}
	if silent != nil {
		return ready, k.guard.Do(ctx, r.Path, "make", func() error {
			if strings.HasPrefix(r.Name, "silent") {
				<-silent
			}
			return os.MkdirAll(r.Path, 0o755)
		})
	}
	return ready, os.MkdirAll(r.Path, 0o755)
}

func (k *fakeKind) Release(_ context.Context, p Place) error {
	k.mu.Lock()
	err := k.fail["release "+p.Name]
	k.mu.Unlock()
	if err != nil {
		return err
	}
	return os.Remove(p.Path)
}

func (k *fakeKind) set(name string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fail[name] = err
}

func (k *fakeKind) all() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.prepared)
}

func (k *fakeKind) attempts(name string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []string
	for _, s := range k.prepared {
		if n, at, _ := strings.Cut(s, " "); n == name {
			out = append(out, at)
		}
	}
	return out
}

type bench struct {
	*Manager
	ahead   time.Duration // offset of the clock
	kind    *fakeKind
	events  *eventlog.Log
	root    string
	mu      sync.Mutex
	wakeUps int
}

func (b *bench) woken() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.wakeUps
	b.wakeUps = 0
	return n
}

// inBubble runs a manager with a fake kind in virtual time.
func inBubble(t *testing.T, test func(t *testing.T, b *bench)) {
	t.Helper()
	inBubbleOver(t, t.TempDir(), test)
}

// inBubbleOver is inBubble with an existing root directory.
func inBubbleOver(t *testing.T, root string, test func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{kind: newFakeKind(), events: &eventlog.Log{}, root: root}
		b.Manager = New(Config{
			RootDir:           root,
			Kinds:             []Kind{b.kind},
			Guard:             mount.NewGuard(),
			Events:            b.events,
			RecursiveReadOnly: func(*v1.Pod) bool { return false },
			StatsPeriod:       time.Minute,
			MaySwap:           func() (bool, error) { return false, nil },
			OnChange:          func(types.UID) { b.mu.Lock(); b.wakeUps++; b.mu.Unlock() },
			Log:               slog.New(slog.DiscardHandler),
		})
		b.now = func() time.Time {
			b.mu.Lock()
			defer b.mu.Unlock()
			return time.Now().Round(0).Add(b.ahead)
		}
		b.kind.now = b.now
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- b.Run(ctx) }()
		synctest.Wait()
		test(t, b)
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

func testPod(uid types.UID, names ...string) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: string(uid), UID: uid},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main"}}},
	}
	for _, n := range names {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{
			Name:         n,
			VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}},
		})
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, v1.VolumeMount{
			Name:      n,
			MountPath: "/" + n,
		})
	}
	return p
}

// A panic at the start of an attempt is a failure: it is retried after one second, two, and four.
func TestPanicAtStartOfAttempt(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.kind.set("a", errors.New("not yet"))
		b.Want(testPod("u", "a"))
		b.Want(testPod("well", "b"))
		synctest.Wait()
		b.kind.set("a", nil)
		b.kind.mu.Lock()
		b.kind.panics = 3
		b.kind.mu.Unlock()
		time.Sleep(7 * time.Second)
		if got := b.kind.attempts("a"); !slices.Equal(got, []string{"0s"}) {
			t.Errorf("attempts at %v", got)
		}
		time.Sleep(time.Second)
		if got := b.kind.attempts("a"); !slices.Equal(got, []string{"0s", "7.5s"}) {
			t.Errorf("attempts at %v", got)
		}
		for _, uid := range []types.UID{"u", "well"} {
			if ready, err := b.Ready(uid); !ready || err != nil {
				t.Errorf("%s: %v, %v", uid, ready, err)
			}
		}
	})
}

// TestPanicInWant: a panic of a kind while its volume is requested blocks no other pod, and the volume is prepared
// later.
func TestPanicInWant(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.kind.panics = 1
		if err := panics.Try(b.cfg.Log, part, func() error {
			b.Want(testPod("u", "a"))
			return nil
		}); err != nil {
			t.Errorf("a failed attempt is not one of Want: %v", err)
		}
		b.kind.serves = 1
		late := testPod("late", "c")
		if err := panics.Try(b.cfg.Log, part, func() error {
			b.Want(late)
			return nil
		}); err == nil {
			t.Error("a pod whose kind cannot be found out is wanted")
		}
		if !b.mu.TryLock() {
			t.Fatal("the lock is held after a panic")
		}
		b.mu.Unlock()
		b.Want(testPod("well", "b"))
		b.Want(late)
		time.Sleep(time.Second)
		for _, uid := range []types.UID{"u", "well", "late"} {
			if ready, err := b.Ready(uid); !ready || err != nil {
				t.Errorf("%s: %v, %v", uid, ready, err)
			}
		}
	})
}

func TestManagerPreparesOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		p := testPod("u", "a", "b", "c")
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{
			Name:         "unused",
			VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}},
		})
		if s := b.State("u"); s.Ready {
			t.Error("an unknown pod is ready")
		}
		for range 3 {
			b.Want(p)
		}
		synctest.Wait()
		if ready, err := b.Ready("u"); !ready || err != nil {
			t.Errorf("ready = %v, %v", ready, err)
		}
		if n := len(b.kind.all()); n != 3 {
			t.Errorf("prepared %v, want each mounted volume once", b.kind.all())
		}
		if n := b.woken(); n != 1 {
			t.Errorf("OnChange was called %d times, want once", n)
		}
		b.Want(p.DeepCopy())
		time.Sleep(24 * time.Hour)
		if n, m := len(b.kind.all()), b.woken(); n != 3 || m != 0 {
			t.Errorf("%d attempts and %d wake-ups after a day of nothing", n, m)
		}
		if len(b.events.Texts()) > 0 {
			t.Errorf("events: %v", b.events.Texts())
		}
		b.Release(pod.RefOf(p))
		synctest.Wait()
		if done, err := b.Released("u"); !done || err != nil {
			t.Errorf("released = %v, %v", done, err)
		}
	})
	inBubble(t, func(t *testing.T, b *bench) {
		b.Want(testPod("none"))
		if ready, _ := b.Ready("none"); !ready || b.woken() != 1 {
			t.Error("a pod without volumes waits")
		}
	})
}

func TestManagerBackOff(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.kind.set("bad", errors.New("no"))
		b.Want(testPod("u", "good", "bad"))
		synctest.Wait()
		s := b.State("u")
		if s.Ready || s.Err == nil || s.Err.Error() != `volume "bad": no` ||
			time.Until(s.RetryAt) != 500*time.Millisecond {
			t.Errorf("state = %+v", s)
		}
		if n := b.woken(); n != 1 {
			t.Errorf("OnChange was called %d times for one failure", n)
		}
		time.Sleep(10 * time.Minute)
		b.kind.backsOff(t, "bad")
		if n := len(b.kind.attempts("good")); n != 1 {
			t.Errorf("the good volume was prepared %d times", n)
		}
		if n := b.woken(); n != 0 {
			t.Errorf("OnChange was called %d times for the same failure", n)
		}
		b.kind.set("bad", nil)
		time.Sleep(maxRetry)
		if ready, err := b.Ready("u"); !ready || err != nil {
			t.Errorf("ready = %v, %v after the fault", ready, err)
		}
		b.Release(pod.Ref{UID: "u"})
		synctest.Wait()
	})
	parity.Proves(t, "VOL-12")
}

// A waiting volume is retried with back-off, and at once after Again. It is not a failure.
func TestManagerRetriesWaitingVolume(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.kind.set("a", &Waiting{For: "volume to be attached", Attach: true})
		b.Want(testPod("u", "a"))
		time.Sleep(10 * time.Minute)
		b.kind.backsOff(t, "a")
		if s := b.State("u"); s.Ready || s.Err != nil {
			t.Errorf("while it waits: %+v", s)
		}
		b.kind.set("a", nil)
		n := len(b.kind.attempts("a"))
		b.Again("u")
		synctest.Wait()
		if ready, err := b.Ready("u"); !ready || err != nil || len(b.kind.attempts("a")) != n+1 {
			t.Errorf("ready = %v, %v after %d more looks", ready, err, len(b.kind.attempts("a"))-n)
		}
		b.Release(pod.Ref{UID: "u"})
		synctest.Wait()
	})
	parity.ProvesPart(t, 2, "VOL-61")
}

func TestManagerTimeoutEvent(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.kind.set("zz", errors.New("no"))
		b.kind.set("bad", &Unresolved{errors.New("no claim")})
		b.kind.set("away", &Waiting{For: "volume to be attached", Attach: true})
		b.Want(testPod("u", "zz", "good", "bad", "away"))
		const want = "Warning FailedMount Unable to attach or mount volumes: unmounted volumes=[away bad zz], unattached " +
			"volumes=[away], failed to process volumes=[bad]: context deadline exceeded"
		logged := func() (n int) {
			for _, e := range b.events.Texts() {
				if e == want {
					n++
				}
			}
			return n
		}
		time.Sleep(2*time.Minute + 3*time.Second - time.Millisecond)
		for times := range 3 { // each attempt has its own timeout
			if got := logged(); got != times {
				t.Errorf("just before 2m3s had passed for the %d. time there were %d events", times+1, got)
			}
			time.Sleep(2*time.Minute + 3*time.Second)
		}
		if !slices.Contains(b.events.Texts(), `Warning FailedMount MountVolume.SetUp failed for volume "zz" : no`) {
			t.Errorf("events %v lack the volume's own", b.events.Texts())
		}
		b.Release(pod.Ref{UID: "u"})
		synctest.Wait()
		before := len(b.events.Texts())
		time.Sleep(time.Hour)
		if len(b.events.Texts()) != before {
			t.Errorf("events of a released pod: %v", b.events.Texts()[before:])
		}
	})
	parity.Differs(t, "VOL-02", "0126")
}

func TestManagerRefreshesOnChange(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.kind.inputs = Inputs{Objects: []Object{{ConfigMap, "m"}}, Pod: true}
		p := testPod("u", "a")
		b.kind.set("a", errors.New("configmap missing"))
		b.Want(p)
		time.Sleep(time.Minute) // well into the back-off
		n := len(b.kind.attempts("a"))
		b.kind.set("a", nil)
		b.ObjectChanged([]types.UID{"u"}, Secret, "m")
		b.ObjectChanged([]types.UID{"u"}, ConfigMap, "other")
		synctest.Wait()
		if got := len(b.kind.attempts("a")); got != n {
			t.Errorf("%d attempts for objects that are not shown", got-n)
		}
		b.ObjectChanged([]types.UID{"u"}, ConfigMap, "m")
		synctest.Wait()
		if ready, _ := b.Ready("u"); !ready {
			t.Error("the object's arrival did not end the wait")
		}
		n = len(b.kind.attempts("a"))
		for _, edit := range []func(*v1.Pod){
			func(p *v1.Pod) { p.Labels = map[string]string{"x": "y"} },
			func(p *v1.Pod) { p.Annotations = map[string]string{"x": "y"} },
			func(p *v1.Pod) { p.Generation++ },
		} {
			p = p.DeepCopy()
			edit(p)
			b.Want(p)
			synctest.Wait()
			n++
			if got := len(b.kind.attempts("a")); got != n {
				t.Errorf("%d attempts after an edit, want %d", got, n)
			}
		}
		p = p.DeepCopy()
		p.Status.Phase = v1.PodRunning
		b.Want(p)
		synctest.Wait()
		if got := len(b.kind.attempts("a")); got != n {
			t.Error("a change of status refreshed a volume")
		}
		// A failing refresh leaves the volume ready.
		b.kind.set("a", errors.New("gone"))
		b.ObjectChanged([]types.UID{"u"}, ConfigMap, "m")
		synctest.Wait()
		if s := b.State("u"); !s.Ready || s.Err == nil {
			t.Errorf("state after a failed refresh = %+v, want ready, and the failure", s)
		}
		b.Release(pod.RefOf(p))
		synctest.Wait()
	})
}

func TestManagerRefreshesByAge(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.kind.renew = 48 * time.Minute
		b.Want(testPod("u", "token"))
		time.Sleep(4 * time.Hour)
		if got, want := b.kind.attempts("token"), []string{"0s", "48m0s", "1h36m0s", "2h24m0s", "3h12m0s",
			"4h0m0s"}; !slices.Equal(got, want) && !slices.Equal(got, want[:5]) {
			t.Errorf("renewed at %v, want %v", got, want)
		}
		b.kind.mu.Lock()
		b.kind.renew = time.Nanosecond // the clocks of token and node differ
		b.kind.mu.Unlock()
		time.Sleep(time.Hour)
		n := len(b.kind.attempts("token"))
		time.Sleep(time.Minute)
		if got := len(b.kind.attempts("token")) - n; got > 7 {
			t.Errorf("%d renewals in a minute", got)
		}
		b.Release(pod.Ref{UID: "u"})
		synctest.Wait()
	})
}

// If the clock is set ahead or the machine is suspended, expired content is refreshed soon,
// although its timer has not fired.
func TestManagerRefreshesAfterClockChange(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.kind.renew = 48 * time.Minute
		b.Want(testPod("u", "token"))
		time.Sleep(10 * time.Minute)
		for i, c := range []struct {
			ahead time.Duration
			wait  time.Duration
			want  int // attempts by then
		}{
			{0, 10 * time.Minute, 1},
			{time.Second, 5 * time.Minute, 1},
			{10 * time.Minute, 2 * time.Minute, 1}, // 11 minutes remain
			{10 * time.Minute, 10 * time.Minute, 2},
			{24 * time.Hour, clockPeriod + 2*minRefresh, 3},
			{-24 * time.Hour, time.Hour, 4},
		} {
			b.mu.Lock()
			b.ahead += c.ahead
			b.mu.Unlock()
			time.Sleep(c.wait)
			if got := b.kind.attempts("token"); len(got) != c.want {
				t.Errorf("%d: attempts at %v, want %d", i, got, c.want)
			}
		}
		b.Release(pod.Ref{UID: "u"})
		synctest.Wait()
	})
}

func TestManagerHangingVolume(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.kind.hang["stuck"] = true
		b.Want(testPod("u1", "stuck", "fine"))
		b.Want(testPod("u2", "fine"))
		synctest.Wait()
		if ready, _ := b.Ready("u2"); !ready {
			t.Error("another pod waits for the hanging volume")
		}
		if ready, _ := b.Ready("u1"); ready {
			t.Error("the pod is ready without its volume")
		}
		time.Sleep(attemptTimeout + time.Second)
		if s := b.State("u1"); s.Err == nil || !strings.Contains(s.Err.Error(), "hung") {
			t.Errorf("state = %+v, want the reason", s)
		}
		// A pod can be deleted while its volume hangs.
		b.Release(pod.Ref{UID: "u1"})
		synctest.Wait()
		if done, err := b.Released("u1"); !done || err != nil {
			t.Errorf("released = %v, %v", done, err)
		}
		b.Release(pod.Ref{UID: "u2"})
		synctest.Wait()
	})
}

func TestManagerRetriesRelease(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		p := testPod("u", "a", "b")
		b.Want(p)
		synctest.Wait()
		b.kind.set("release a", errors.New("busy"))
		b.woken()
		b.Release(pod.RefOf(p))
		b.Release(pod.RefOf(p))
		synctest.Wait()
		if done, err := b.Released("u"); done || err == nil || err.Error() != `release volume "a": busy` {
			t.Errorf("released = %v, %v", done, err)
		}
		if ready, _ := b.Ready("u"); ready {
			t.Error("a pod whose volumes are being released is ready")
		}
		if _, err := b.Mounts(context.Background(), p, &p.Spec.Containers[0], nil); err == nil {
			t.Error("volumes that go are mounted")
		}
		time.Sleep(time.Minute)
		if n := b.woken(); n != 1 {
			t.Errorf("OnChange was called %d times for one failure", n)
		}
		b.kind.set("release a", nil)
		time.Sleep(maxRetry)
		if done, err := b.Released("u"); !done || err != nil || b.woken() != 1 {
			t.Errorf("released = %v, %v, or OnChange was not called", done, err)
		}
		b.Release(pod.RefOf(p))
		synctest.Wait()
		if b.woken() != 0 {
			t.Error("asking again did something")
		}
		if err := b.RemoveDir(context.Background(), "u"); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(filepath.Join(b.root, "pods")); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	})
}

// The registration of a driver retries the volumes that wait for it, and no others.
func TestManagerDriverRegistered(t *testing.T) {
	none := fmt.Errorf("attach: %w", &NoDriver{Name: "disk.example.com"})
	inBubble(t, func(t *testing.T, b *bench) {
		for name, err := range map[string]error{
			"a": none,
			"b": errors.New("broken"),
			"c": &NoDriver{Name: "other.example.com"},
		} {
			b.kind.set(name, err)
		}
		p := testPod("u", "a", "b", "c")
		b.Want(p)
		time.Sleep(5 * time.Minute) // by now all are tried every 122 s
		before := map[string]int{}
		for _, name := range []string{"a", "b", "c"} {
			before[name] = len(b.kind.attempts(name))
			b.kind.set(name, nil)
		}
		b.DriverRegistered("disk.example.com")
		synctest.Wait()
		for name, more := range map[string]int{"a": 1, "b": 0, "c": 0} {
			if n := len(b.kind.attempts(name)) - before[name]; n != more {
				t.Errorf("%s: %d attempts more, want %d", name, n, more)
			}
		}
		b.DriverRegistered("other.example.com")
		time.Sleep(maxRetry)
		if ready, err := b.Ready("u"); !ready {
			t.Errorf("it is not ready: %v", err)
		}
		n := len(b.kind.all())
		b.DriverRegistered("disk.example.com")
		synctest.Wait()
		if more := len(b.kind.all()) - n; more != 0 {
			t.Errorf("%d attempts at what is ready", more)
		}

		// Releases that failed without the driver are retried as well.
		b.kind.set("release a", none)
		b.Release(pod.RefOf(p))
		time.Sleep(5 * time.Minute)
		b.kind.set("release a", nil)
		b.DriverRegistered("disk.example.com")
		synctest.Wait()
		if done, err := b.Released("u"); !done {
			t.Errorf("it is not released: %v", err)
		}

		// A driver that registers during an attempt that fails because it was missing.
		b.kind.set("d", none)
		b.kind.mu.Lock()
		b.kind.during = func() {
			b.DriverRegistered("disk.example.com")
			b.kind.set("d", nil)
		}
		b.kind.mu.Unlock()
		b.Want(testPod("v", "d"))
		synctest.Wait()
		if ready, err := b.Ready("v"); !ready || len(b.kind.attempts("d")) != 2 {
			t.Errorf("ready: %v, %v, after %d attempts", ready, err, len(b.kind.attempts("d")))
		}
	})
}

func TestManagerWantedAgainWhileReleasing(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		p := testPod("static", "a")
		b.Want(p)
		synctest.Wait()
		b.kind.set("release a", errors.New("busy"))
		b.Release(pod.RefOf(p))
		synctest.Wait()
		b.Want(p)
		b.kind.set("release a", nil)
		time.Sleep(maxRetry)
		if ready, err := b.Ready("static"); !ready || err != nil {
			t.Errorf("ready = %v, %v", ready, err)
		}
		b.Release(pod.RefOf(p))
		synctest.Wait()
		b.Want(p)
		synctest.Wait()
		if ready, err := b.Ready("static"); !ready || err != nil {
			t.Errorf("ready = %v, %v after another turn", ready, err)
		}
		b.Release(pod.RefOf(p))
		synctest.Wait()
	})
}

func TestManagerCallsBeforeRun(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		k := newFakeKind()
		m := New(Config{
			RootDir:  root,
			Kinds:    []Kind{k},
			Guard:    mount.NewGuard(),
			Events:   &eventlog.Log{},
			MaySwap:  mount.MaySwap,
			OnChange: func(types.UID) {},
			Log:      slog.New(slog.DiscardHandler),
		})
		m.Want(testPod("u", "a"))
		m.Release(pod.Ref{UID: "old"})
		synctest.Wait()
		if len(k.all()) > 0 {
			t.Error("work began before Run")
		}
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		synctest.Wait()
		if ready, _ := m.Ready("u"); !ready {
			t.Error("not ready")
		}
		if done, _ := m.Released("old"); !done {
			t.Error("not released")
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestManagerDropsReleasedPods(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		for i := range 1000 {
			p := testPod(types.UID(fmt.Sprint("u", i)), "a")
			b.Want(p)
			synctest.Wait()
			b.Release(pod.RefOf(p))
			synctest.Wait()
			if err := os.RemoveAll(PodDir(b.root, p.UID)); err != nil {
				t.Fatal(err)
			}
		}
		b.Manager.mu.Lock()
		n := len(b.pods)
		b.Manager.mu.Unlock()
		if n > maxReleased+1 {
			t.Errorf("%d pods are kept", n)
		}
	})
}

func TestManagerUnsupportedKinds(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		left := filepath.Join(PodDir(b.root, "u"), "volumes", "kubernetes.io~csi", "pvc", "vol_data.json")
		if err := os.MkdirAll(filepath.Dir(left), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(left, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		b.Release(pod.Ref{UID: "u"})
		synctest.Wait()
		done, err := b.Released("u")
		if done || err == nil || !strings.Contains(err.Error(), "no volume plugin matched") {
			t.Errorf("released = %v, %v, want a reason", done, err)
		}
		if _, err := os.Stat(left); err != nil {
			t.Errorf("it was removed: %v", err)
		}
		if err := os.Remove(left); err != nil {
			t.Fatal(err)
		}
		time.Sleep(maxRetry)
		if done, err := b.Released("u"); !done || err != nil {
			t.Errorf("released = %v, %v", done, err)
		}
	})
}

// All calls to a server with many volumes of one pod hang. That pod waits; others do not, and there
// are enough slots for them.
func TestManagerManyHangingVolumes(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.kind.guard, b.kind.silent = b.cfg.Guard, make(chan struct{})
		var names []string
		for i := range 500 {
			names = append(names, fmt.Sprint("silent", i))
		}
		b.Want(testPod("u1", names...))
		time.Sleep(3 * attemptTimeout)
		for _, uid := range []types.UID{"u2", "u3"} {
			b.Want(testPod(uid, "a"))
			synctest.Wait()
			if ready, err := b.Ready(uid); !ready || err != nil {
				t.Errorf("another pod: ready = %v, %v", ready, err)
			}
			b.Release(pod.Ref{UID: uid})
			synctest.Wait()
			if done, err := b.Released(uid); !done || err != nil {
				t.Errorf("another pod: released = %v, %v", done, err)
			}
		}
		close(b.kind.silent)
		time.Sleep(2 * maxRetry)
		if ready, err := b.Ready("u1"); !ready || err != nil {
			t.Errorf("ready = %v, %v once the server is back", ready, err)
		}
		b.Release(pod.Ref{UID: "u1"})
		synctest.Wait()
	})
}
