package backend

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/desired"
	"keelson/internal/pods/explain"
	"keelson/internal/pods/observed"
	"keelson/internal/pods/panics"
	"keelson/internal/pods/status"
)

// patience is how long a pod's worker is waited for. If a worker is busy for longer, the explanation shows that.
const patience = 2 * time.Second

// worker explains one pod; see podsync.
type worker interface {
	// Explain returns false if the pod has no worker.
	Explain(ctx context.Context, uid types.UID) (explain.Pod, bool)
}

// Explainer explains the state of pods.
type Explainer struct {
	Node     string
	Desired  *desired.Store
	Observed *observed.Cache
	Statuses *status.Writer
	Workers  worker
	Log      *slog.Logger
}

// Pod explains a pod that is desired, or that the runtime still has.
func (e Explainer) Pod(ctx context.Context, namespace, name string) (explain.Pod, bool) {
	uid, ok := e.find(namespace, name)
	if !ok {
		return explain.Pod{}, false
	}
	p, ok := e.explain(ctx, uid)
	if !ok {
		// The pod is desired, but has no worker yet.
		now := time.Now()
		p = explain.Pod{UID: string(uid), At: now, Waits: []explain.Wait{{For: "its worker to start"}}}
		explain.Judge(&p)
	}
	p.Namespace, p.Name = namespace, name
	return p, true
}

func (e Explainer) find(namespace, name string) (types.UID, bool) {
	if d, ok := e.Desired.ByName(namespace, name); ok {
		return d.Spec.UID, true
	}
	for _, uid := range e.Observed.UIDs() {
		if have, _ := e.Observed.Get(uid); have.Namespace == namespace && have.Name == name {
			return uid, true
		}
	}
	return "", false
}

func (e Explainer) explain(ctx context.Context, uid types.UID) (explain.Pod, bool) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	p, ok := e.Workers.Explain(ctx, uid)
	if !ok {
		return p, false
	}
	p.Node = e.Node
	if st, ok := e.Statuses.Get(uid); ok {
		p.Phase = string(st.Phase)
	}
	return p, true
}

// List explains every pod in one line. The workers are called concurrently, so that one that does not respond does not
// delay the others.
func (e Explainer) List(ctx context.Context) explain.List {
	list := explain.List{Node: e.Node, At: time.Now(), Pods: []explain.Line{}}
	uids := map[types.UID][2]string{}
	for _, d := range e.Desired.All() {
		uids[d.Spec.UID] = [2]string{d.Spec.Namespace, d.Spec.Name}
	}
	for _, uid := range e.Observed.UIDs() {
		if _, known := uids[uid]; !known {
			have, _ := e.Observed.Get(uid)
			uids[uid] = [2]string{have.Namespace, have.Name}
		}
	}
	var mu sync.Mutex
	var asked sync.WaitGroup
	for uid, name := range uids {
		asked.Go(func() {
			var p explain.Pod
			var ok bool
			err := panics.Try(e.Log, "explain", func() error {
				p, ok = e.explain(ctx, uid)
				return nil
			})
			if err != nil {
				p.State, p.Verdict = explain.Waiting, "cannot be explained: "+err.Error()
			} else if !ok {
				p.State, p.Verdict = explain.Waiting, "waiting for its worker to start"
			}
			mu.Lock()
			defer mu.Unlock()
			list.Pods = append(list.Pods, explain.Line{
				Namespace: name[0],
				Name:      name[1],
				State:     p.State,
				Since:     p.Since,
				Verdict:   p.Verdict,
			})
		})
	}
	asked.Wait()
	slices.SortFunc(list.Pods, func(a, b explain.Line) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return list
}
