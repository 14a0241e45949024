package backend

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/desired"
	"keelson/internal/pods/explain"
	"keelson/internal/pods/observed"
	"keelson/internal/pods/pod"
	"keelson/internal/pods/status"
	"keelson/internal/runtime/cri"
	"keelson/test/kit/fakecri"
)

// pods is a source of pods.
type pods []*v1.Pod

func (p pods) Name() pod.Source { return pod.SourceAPI }

func (p pods) Run(ctx context.Context, to desired.Sink) error {
	to.Replace(p)
	<-ctx.Done()
	return nil
}

func named(uid types.UID, name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, Name: name, Namespace: "ns"}}
}

// workers are fake workers by pod.
type workers map[types.UID]func(context.Context) (explain.Pod, bool)

func (w workers) Explain(ctx context.Context, uid types.UID) (explain.Pod, bool) {
	if f, ok := w[uid]; ok {
		return f(ctx)
	}
	return explain.Pod{}, false
}

// explained runs f with an Explainer for the pods of a source, and a runtime without pods.
func explained(t *testing.T, source pods, w workers, f func(t *testing.T, e Explainer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		fake := fakecri.New(fakecri.Options{})
		defer fake.Close()
		conn, err := fake.Dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		e := Explainer{
			Node: "n1",
			Desired: desired.New(desired.Config{
				NodeName: "n1",
				Sources:  []desired.Source{source},
				OnChange: func(types.UID) {},
				Log:      log,
			}),
			Observed: observed.New(observed.Config{
				Runtime:  cri.Over(conn, conn, cri.Config{RequestTimeout: 10 * time.Second}),
				OnChange: func(types.UID) {},
				Log:      log,
				Now:      time.Now,
			}),
			Statuses: status.NewWriter(status.Config{Log: log, Now: time.Now}),
			Workers:  w,
			Log:      log,
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- e.Desired.Run(ctx) }()
		go func() { ended <- e.Observed.Run(ctx) }()
		synctest.Wait()
		f(t, e)
		cancel()
		for range 2 {
			if err := <-ended; err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
}

func TestExplainedPod(t *testing.T) {
	source := pods{named("u1", "web"), named("u2", "new")}
	w := workers{"u1": func(context.Context) (explain.Pod, bool) {
		return explain.Pod{UID: "u1", State: explain.Waiting}, true
	}}
	explained(t, source, w, func(t *testing.T, e Explainer) {
		if p, ok := e.Pod(t.Context(), "ns", "web"); !ok || p.Name != "web" || p.Namespace != "ns" || p.Node != "n1" {
			t.Errorf("web is %+v, %v", p, ok)
		}
		p, ok := e.Pod(t.Context(), "ns", "new")
		if !ok || p.UID != "u2" || len(p.Waits) != 1 {
			t.Errorf("a pod without a worker is %+v, %v", p, ok)
		}
		if p, ok := e.Pod(t.Context(), "other", "web"); ok {
			t.Errorf("a pod that does not exist is %+v", p)
		}
	})
}

// TestExplainedList has a worker that does not answer and one that panics: the others are explained nonetheless.
func TestExplainedList(t *testing.T) {
	source := pods{named("u1", "web"), named("u2", "new"), named("u3", "stuck"), named("u4", "broken")}
	w := workers{
		"u1": func(context.Context) (explain.Pod, bool) {
			return explain.Pod{UID: "u1", State: explain.Waiting, Verdict: "waiting for its image"}, true
		},
		"u3": func(ctx context.Context) (explain.Pod, bool) {
			<-ctx.Done()
			return explain.Pod{UID: "u3", State: explain.Waiting, Verdict: "busy"}, true
		},
		"u4": func(context.Context) (explain.Pod, bool) { panic("out of order") },
	}
	explained(t, source, w, func(t *testing.T, e Explainer) {
		list := e.List(t.Context())
		if took := time.Since(list.At); took != patience {
			t.Errorf("the list took %s, want that one worker is waited for during %s", took, patience)
		}
		var got []string
		for _, p := range list.Pods {
			got = append(got, p.Name+": "+p.Verdict)
		}
		want := []string{
			"broken: cannot be explained: internal error, the stack is in the agent's log: out of order",
			"new: waiting for its worker to start",
			"stuck: busy",
			"web: waiting for its image",
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("pods are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

func TestPodsWithTheirStatus(t *testing.T) {
	source := pods{named("u1", "web"), named("u2", "new")}
	explained(t, source, nil, func(t *testing.T, e Explainer) {
		web, _ := e.Desired.ByName("ns", "web")
		e.Statuses.Publish(status.Facts{Pod: web.Spec, Started: time.Now()})
		shown := Pods{Desired: e.Desired, Statuses: e.Statuses}
		if p, ok := shown.Pod("ns", "web"); !ok || p.Status.Phase != v1.PodPending {
			t.Errorf("web is %+v, %v", p, ok)
		}
		if web.Spec.Status.Phase != "" {
			t.Error("the status was written into the pod of the store")
		}
		if p, ok := shown.ByUID("u2"); !ok || p.Status.Phase != "" {
			t.Errorf("a pod without a status is %+v, %v", p, ok)
		}
		if _, ok := shown.ByUID("u3"); ok {
			t.Error("a pod that does not exist has been found")
		}
		if list := shown.Pods(); len(list) != 2 {
			t.Errorf("pods are %v", list)
		}
	})
}
