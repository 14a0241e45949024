package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"

	"keelson/test/rig"
)

// profile starts a CPU profile of our kubelet if the run is configured to profile. The returned function waits until
// the profile is complete.
func (r *run) profile(ctx context.Context, c contender, k *rig.Kubelet) (stop func()) {
	if r.cfg.Profile == "" || c.who != Ours {
		return func() {}
	}
	const length = 20 // seconds; the server cannot end a profile earlier
	scene := r.scene
	done := make(chan struct{})
	go func() {
		defer close(done)
		data, err := k.Get(ctx, fmt.Sprintf("/debug/pprof/profile?seconds=%d", length))
		if err == nil {
			err = os.WriteFile(filepath.Join(r.cfg.Profile, scene+".pprof"), []byte(data), 0o644)
		}
		if err != nil && ctx.Err() == nil {
			r.cfg.Log.Warn("cannot profile", "err", err)
		}
	}()
	return func() { <-done }
}

// logCalls writes the calls to the runtime and the requests to the API server with their times.
func (r *run) logCalls(c contender, s *fakeStage) {
	if r.cfg.Profile == "" {
		return
	}
	f, err := os.Create(filepath.Join(r.cfg.Profile, r.scene+"-"+c.who+".calls"))
	if err != nil {
		r.cfg.Log.Warn("cannot log calls", "err", err)
		return
	}
	defer f.Close()
	w := tabwriter.NewWriter(f, 0, 0, 2, ' ', 0)
	calls := s.runtime.Calls(0)
	for _, call := range calls {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.2f ms\t%s\n", call.Start.Format("05.000000"), "CRI", call.Method, call.Key(),
			ms(call.End.Sub(call.Start)), call.Err)
	}
	for _, q := range s.proxy.Requests() {
		took := "open"
		if !q.End.IsZero() {
			took = fmt.Sprintf("%.2f ms", ms(q.End.Sub(q.Start)))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\n", q.Start.Format("05.000000"), "API", q.Verb+" "+q.Resource,
			q.Namespace+"/"+q.Name, took, q.Code)
	}
	if err := w.Flush(); err != nil {
		r.cfg.Log.Warn("cannot log calls", "err", err)
	}
}
