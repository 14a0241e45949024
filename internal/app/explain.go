package app

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/node/panics"
	"keelson/internal/pods/explain"
)

// patience is how long a pod's worker is waited for; one that is busy for longer is
// what there is to explain.
const patience = 2 * time.Second

// explainer says why pods are as they are.
type explainer struct{ *agent }

// Pod explains a pod that a source wants, or that the runtime still has.
func (e explainer) Pod(ctx context.Context, namespace, name string) (explain.Pod, bool) {
	uid, ok := e.find(namespace, name)
	if !ok {
		return explain.Pod{}, false
	}
	p, ok := e.explain(ctx, uid)
	if !ok {
		// A source has it and no worker was made yet.
		now := time.Now()
		p = explain.Pod{UID: string(uid), At: now, Waits: []explain.Wait{{For: "the agent to take it up"}}}
		explain.Judge(&p)
	}
	p.Namespace, p.Name = namespace, name
	return p, true
}

func (e explainer) find(namespace, name string) (types.UID, bool) {
	if d, ok := e.desired.ByName(namespace, name); ok {
		return d.Spec.UID, true
	}
	for _, uid := range e.observed.UIDs() {
		if have, _ := e.observed.Get(uid); have.Namespace == namespace && have.Name == name {
			return uid, true
		}
	}
	return "", false
}

func (e explainer) explain(ctx context.Context, uid types.UID) (explain.Pod, bool) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	p, ok := e.syncer.Explain(ctx, uid)
	if !ok {
		return p, false
	}
	p.Node = e.cfg.NodeName
	if st, ok := e.statuses.Get(uid); ok {
		p.Phase = string(st.Phase)
	}
	return p, true
}

// List says of every pod in one line how it is. The workers are asked side by side:
// those that do not answer hold up nobody but themselves.
func (e explainer) List(ctx context.Context) explain.List {
	list := explain.List{Node: e.cfg.NodeName, At: time.Now(), Pods: []explain.Line{}}
	uids := map[types.UID][2]string{}
	for _, d := range e.desired.All() {
		uids[d.Spec.UID] = [2]string{d.Spec.Namespace, d.Spec.Name}
	}
	for _, uid := range e.observed.UIDs() {
		if _, known := uids[uid]; !known {
			have, _ := e.observed.Get(uid)
			uids[uid] = [2]string{have.Namespace, have.Name}
		}
	}
	var mu sync.Mutex
	var asked sync.WaitGroup
	for uid, name := range uids {
		asked.Go(func() {
			var p explain.Pod
			var ok bool
			err := panics.Try(e.log, "explain", func() error {
				p, ok = e.explain(ctx, uid)
				return nil
			})
			if err != nil {
				p.State, p.Verdict = explain.Waiting, "cannot be explained: "+err.Error()
			} else if !ok {
				p.State, p.Verdict = explain.Waiting, "waiting for the agent to take it up"
			}
			mu.Lock()
			defer mu.Unlock()
			list.Pods = append(list.Pods, explain.Line{Namespace: name[0], Name: name[1], State: p.State, Since: p.Since, Verdict: p.Verdict})
		})
	}
	asked.Wait()
	slices.SortFunc(list.Pods, func(a, b explain.Line) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return list
}
