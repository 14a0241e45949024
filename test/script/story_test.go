package script

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"keelson/test/kit/await"
	"keelson/test/kit/fakecri"
)

// tell runs a story that is written in Go because it counts or uses random numbers. It has
// the same World as a scenario, and the same invariants are checked.
func tell(t *testing.T, configuration string, story func(t *testing.T, r *Run)) {
	dir := NodeDir(t)
	var log string
	defer func() {
		if t.Failed() || *logged {
			t.Logf("the agent's log ends:\n%s", log[max(0, len(log)-20_000):])
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		w := NewWorld(t, dir, configuration, false)
		defer func() {
			w.Close()
			for _, b := range w.breaches() {
				t.Error(b)
			}
			log = w.Log.String()
		}()
		w.Start()
		story(t, &Run{World: w, Scenario: &Scenario{Files: map[string]string{}}, faults: map[string]fault{}})
	})
}

// onePod is a pod with one container that runs.
func onePod(name string) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace},
		Spec:       corev1.PodSpec{NodeName: Node, Containers: []corev1.Container{{Name: "main", Image: Image}}},
	}
}

// TestBurstOnARuntimeWithoutLimit starts a hundred pods at once on a runtime
// that makes any number of sandboxes in 130 ms each: none has to wait for long.
func TestBurstOnARuntimeWithoutLimit(t *testing.T) {
	tell(t, "", func(t *testing.T, r *Run) {
		const n, sandbox = 100, 130 * time.Millisecond
		if err := r.awaitNode(time.Minute); err != nil {
			t.Fatal(err)
		}
		r.Runtime.Inject(fakecri.Fault{Method: "RunPodSandbox", Delay: sandbox})
		begin := time.Now()
		var names []string
		for i := range n {
			p := onePod(fmt.Sprintf("burst-%03d", i))
			names = append(names, p.Name)
			if _, err := r.API.CoreV1().Pods(Namespace).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range names {
			if err := r.Awaits(name, time.Minute, func(p *corev1.Pod) bool { return holds(p, "Ready") }); err != nil {
				t.Fatal(err)
			}
		}
		took := time.Since(begin)
		t.Logf("all ready after %v", took)
		if took-sandbox > 250*time.Millisecond {
			t.Errorf("the last of %d pods was ready after %v, a sandbox takes %v", n, took, sandbox)
		}
	})
}

// TestStaticPodEditedAThousandTimes edits the manifest of a static pod again and
// again, at any time, and restarts and kills the agent meanwhile. There are never
// two running copies (World checks that), the last edit is the one that runs,
// and it runs soon after the copy before it has ended.
func TestStaticPodEditedAThousandTimes(t *testing.T) {
	const edits = 1000
	tell(t, "", func(t *testing.T, r *Run) {
		edit := func(i int) {
			p := onePod("app")
			p.Spec.NodeName = ""
			p.Spec.TerminationGracePeriodSeconds = ptr.To(int64(1 + i%3))
			p.Spec.Containers[0].Args = []string{fmt.Sprint(i)}
			if i%2 == 0 { // ends only when it is killed
				p.Spec.Containers[0].Command = []string{"sh", "-c", "trap '' TERM; sleep infinity"}
			}
			if err := r.place(p, "app.yaml"); err != nil {
				t.Fatal(err)
			}
		}
		settled := func(i int) {
			t.Helper()
			defer func() {
				if t.Failed() {
					t.Logf("the runtime holds\n%s", r.showRuntime())
				}
			}()
			await.Within(t, time.Minute, 50*time.Millisecond, fmt.Sprint("version ", i), func() (string, bool) {
				version := r.version("app-" + Node)
				return fmt.Sprintf("version %q", version), version == fmt.Sprint(i)
			})
		}
		var longest time.Duration
		for i := range edits {
			edit(i)
			// From 0 s to a pause in which the pod can come to rest.
			time.Sleep(time.Duration(i*i%97) * 73 * time.Millisecond)
			switch {
			case i%41 == 40:
				r.Stop()
				r.Start()
			case i%67 == 66:
				r.kill()
				time.Sleep(time.Duration(i%5) * time.Second)
				r.Start()
			case i%10 == 9:
				settled(i)
				longest = max(longest, r.lastChange("app-"+Node))
			}
		}
		edit(edits)
		settled(edits)
		started := 0
		for _, c := range r.Runtime.Calls(0) {
			if c.Method == "StartContainer" {
				started++
			}
		}
		t.Logf("%d edits, %d copies started; at most %v from the end of one to the next", edits, started, longest)
		if longest > 2*time.Second {
			t.Errorf("the next copy ran %v after the one before it had ended", longest)
		}
		if started < edits/5 {
			t.Errorf("only %d copies of %d were started: the edits came too fast to prove anything", started, edits)
		}
	})
}

// version is the version of a static pod that runs, which is the argument of its container.
func (w *World) version(pod string) string {
	for _, p := range w.Runtime.Pods() {
		for _, c := range p.Containers {
			if p.Name == Namespace+"/"+pod && c.Status.State == cri.ContainerState_CONTAINER_RUNNING {
				return c.Config.Args[0]
			}
		}
	}
	return ""
}

// lastChange is the time from the end of the last copy of a static pod that was
// stopped to the start of the one that runs.
func (w *World) lastChange(pod string) time.Duration {
	var stopped, started time.Time
	for _, c := range w.Runtime.Calls(0) {
		switch {
		case c.Pod != Namespace+"/"+pod || c.End.IsZero() || c.Err != "":
		case c.Method == "StopContainer":
			stopped = c.End
		case c.Method == "StartContainer":
			started = c.End
		}
	}
	if stopped.IsZero() {
		return 0
	}
	return started.Sub(stopped)
}
