package bench

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"

	"keelson/test/kit/fakecri"
)

// playStart starts one pod after the other on a runtime that answers at once.
func playStart(ctx context.Context, r *run) error {
	plain, token := map[string]Samples{}, map[string]Samples{}
	for _, c := range r.contenders() {
		err := r.onFakeStage(ctx, c, fakeOptions{}, func(ctx context.Context, s *fakeStage) error {
			defer r.profile(ctx, c, s.kubelet)()
			n := max(50, r.cfg.Runs)
			if c.who == Upstream {
				n = 10 // each takes seconds, and no bound depends on them
			}
			for i := range n {
				// In turns, so that the load of the machine is the same for both.
				for _, kind := range []struct {
					name string
					pod  func(*corev1.Pod) *corev1.Pod
					to   map[string]Samples
				}{{"plain", withoutToken, plain}, {"token", withToken, token}} {
					own, err := s.ownShare(ctx, kind.pod(pausePod(s.node, fmt.Sprintf("%s-%03d", kind.name, i))))
					if err != nil {
						return err
					}
					if i > 0 { // the first one meets cold caches
						kind.to[c.who] = append(kind.to[c.who], own)
					}
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		r.say("%s: plain p50 %.1f ms, with a token p50 %.1f ms", c.who, ms(plain[c.who].Median()),
			ms(token[c.who].Median()))
	}
	r.report.Times("F1", "own share of create→Ready, pod without a token", onFakes, plain)
	r.report.Times("F1", "own share of create→Ready, pod with its token", onFakes, token)
	r.report.Hold(ownShareP50, ms(token[Ours].Median()), "")
	r.report.Hold(ownShareP99, ms(token[Ours].P(0.99)), "")
	return nil
}

// ownShare starts a pod, deletes it, and returns the time to Ready minus the time inside the runtime's calls for it.
func (s *fakeStage) ownShare(ctx context.Context, p *corev1.Pod) (time.Duration, error) {
	ctx, cancel := within(ctx, time.Minute)
	defer cancel()
	before := s.runtime.LastCall()
	if err := createOne(ctx, s.client, p); err != nil {
		return 0, err
	}
	lives, err := s.watch.until(ctx, "ready", []string{p.Name}, isReady)
	if err != nil {
		return 0, err
	}
	l := lives[0]
	var calls []fakecri.Call
	for _, c := range s.runtime.Calls(before) {
		if c.Pod == p.Namespace+"/"+p.Name {
			calls = append(calls, c)
		}
	}
	own := l.Ready.Sub(l.Added) - fakecri.TimeInside(calls, l.Added, l.Ready)
	if err := remove(ctx, s.client, []string{p.Name}); err != nil {
		return 0, err
	}
	if _, err := s.watch.until(ctx, "gone", []string{p.Name}, isGone); err != nil {
		return 0, err
	}
	return own, pause(ctx, breath)
}

// breath is the pause between two pods where one at a time is measured. Without it, a series of quick pods would exceed
// the kubelet's rate limit at the API server (kubeAPIQPS, 50 a second), and the figure would measure that limit.
const breath = 200 * time.Millisecond

// sandboxTime is the time that the start of a sandbox takes in the scene burst.
const sandboxTime = 130 * time.Millisecond

// playBurst starts 100 pods at once on a runtime whose sandboxes take sandboxTime to start, in parallel.
func playBurst(ctx context.Context, r *run) error {
	const n = 100
	by := map[string]Samples{}
	slow := func(rt *fakecri.Runtime) { rt.Inject(fakecri.Fault{Method: "RunPodSandbox", Delay: sandboxTime}) }
	for _, c := range r.contenders() {
		err := r.onFakeStage(ctx, c, fakeOptions{before: slow}, func(ctx context.Context, s *fakeStage) error {
			ctx, cancel := within(ctx, 3*time.Minute)
			defer cancel()
			defer r.profile(ctx, c, s.kubelet)()
			names, err := create(ctx, s.client,
				several(n, "burst", func(name string) *corev1.Pod { return withoutToken(pausePod(s.node, name)) }))
			if err != nil {
				return err
			}
			lives, err := s.watch.until(ctx, "ready", names, isReady)
			for _, l := range lives {
				by[c.who] = append(by[c.who], l.Ready.Sub(l.Added))
			}
			return err
		})
		if err != nil {
			return err
		}
		r.say("%s: p50 %.0f ms, p99 %.0f ms", c.who, ms(by[c.who].Median()), ms(by[c.who].P(0.99)))
	}
	r.report.Times("F4", "create→Ready, 100 at once, sandbox 130 ms", onFakes, by)
	r.report.Hold(burstP99, ms(by[Ours].P(0.99)-sandboxTime), "")
	return nil
}

// playProbe starts pods with a readiness probe whose server answers at once.
func playProbe(ctx context.Context, r *run) error {
	// Pods get addresses of this machine, and one server listens on all of them.
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
	})}
	go server.Serve(l)
	defer server.Close()
	port := l.Addr().(*net.TCPAddr).Port

	by := map[string]Samples{}
	for _, c := range r.contenders() {
		err := r.onFakeStage(ctx, c, fakeOptions{runtime: fakecri.Options{PodCIDR: "127.99.0.0/16"}},
			func(ctx context.Context, s *fakeStage) error {
				for i := range r.cfg.Runs {
					took, err := s.startToReady(ctx,
						withoutToken(probed(pausePod(s.node, fmt.Sprintf("probe-%03d", i)), port)))
					if err != nil {
						return err
					}
					by[c.who] = append(by[c.who], took)
				}
				return nil
			})
		if err != nil {
			return err
		}
		r.say("%s: p50 %.0f ms", c.who, ms(by[c.who].Median()))
	}
	r.report.Times("F13", "container start→Ready, instant server, probe period 10 s", onFakes, by)
	r.report.Hold(probeReady, ms(by[Ours].Median()), "")
	return nil
}

func (s *fakeStage) startToReady(ctx context.Context, p *corev1.Pod) (time.Duration, error) {
	ctx, cancel := within(ctx, time.Minute)
	defer cancel()
	started := s.runtime.Ended(func(c fakecri.Call) bool {
		return c.Method == "StartContainer" && c.Pod == "default/"+p.Name
	})
	if err := createOne(ctx, s.client, p); err != nil {
		return 0, err
	}
	lives, err := s.watch.until(ctx, "ready", []string{p.Name}, isReady)
	if err != nil {
		return 0, err
	}
	took := lives[0].Ready.Sub((<-started).End)
	if err := remove(ctx, s.client, []string{p.Name}); err != nil {
		return 0, err
	}
	_, err = s.watch.until(ctx, "gone", []string{p.Name}, isGone)
	return took, err
}

const (
	fewPods  = 110
	manyPods = 1000
	// settle is the time until a kubelet counts as idle. idleFor is how long it is then measured: as long as the
	// longest of the usual periods.
	settle  = 15 * time.Second
	idleFor = time.Minute
)

// playMany gives our kubelet many more pods than usual. It measures its idle CPU, and how soon a status shows the exit
// of a container.
func playMany(ctx context.Context, r *run) error {
	exits, exitsMany := map[string]Samples{}, map[string]Samples{}
	idle, idleMany := map[string]float64{}, map[string]float64{}
	c := r.contenders()[0]
	err := r.onFakeStage(ctx, c, fakeOptions{}, func(ctx context.Context, s *fakeStage) error {
		stages := []struct {
			pods  int
			exits map[string]Samples
			idle  map[string]float64
		}{{fewPods, exits, idle}, {manyPods, exitsMany, idleMany}}
		have := 0
		for _, st := range stages {
			stop := r.profile(ctx, c, s.kubelet)
			if err := s.fill(ctx, have, st.pods); err != nil {
				return err
			}
			stop()
			r.say("%d pods are ready", st.pods)
			u, err := s.idle(ctx)
			if err != nil {
				return err
			}
			st.idle[c.who] = u
			r.say("idle at %d pods: %.2f %% of a core", st.pods, u)
			for i := range 100 { // pods whose container has not exited in an earlier stage
				took, err := s.exit(ctx, fmt.Sprintf("many-%04d", st.pods-1-i))
				if err != nil {
					return err
				}
				st.exits[c.who] = append(st.exits[c.who], took)
			}
			r.say("exit→visible at %d pods: p50 %.1f ms, p99 %.1f ms", st.pods, ms(st.exits[c.who].Median()),
				ms(st.exits[c.who].P(0.99)))
			have = st.pods
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.report.Times("F6", "exit→status visible, 110 pods", onFakes, exits)
	r.report.Times("F6", "exit→status visible, 1,000 pods", onFakes, exitsMany)
	r.report.Numbers("F10", "idle CPU, 110 pods", onFakes, "%", idle)
	r.report.Numbers("F10", "idle CPU, 1,000 pods", onFakes, "%", idleMany)
	r.report.Hold(exitP99, ms(exits[Ours].P(0.99)), "")
	r.report.Hold(exitManyP99, ms(exitsMany[Ours].P(0.99)), "")
	r.report.Hold(idleGrowth, ratio(idleMany[Ours], idle[Ours]), "")
	return nil
}

// fill adds pods until there are as many as to, and waits until all are ready.
func (s *fakeStage) fill(ctx context.Context, from, to int) error {
	ctx, cancel := within(ctx, 5*time.Minute)
	defer cancel()
	var pods []*corev1.Pod
	for i := from; i < to; i++ {
		pods = append(pods, once(withoutToken(pausePod(s.node, fmt.Sprintf("many-%04d", i)))))
	}
	names, err := create(ctx, s.client, pods)
	if err != nil {
		return err
	}
	_, err = s.watch.until(ctx, "ready", names, isReady)
	return err
}

// idle returns the share of a CPU, in percent, that the idle kubelet uses.
func (s *fakeStage) idle(ctx context.Context) (float64, error) {
	if err := pause(ctx, settle); err != nil {
		return 0, err
	}
	before, err := use(s.kubelet.Pid())
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := pause(ctx, idleFor); err != nil {
		return 0, err
	}
	after, err := use(s.kubelet.Pid())
	return 100 * float64(after.CPU-before.CPU) / float64(time.Since(begin)), err
}

// exit ends a pod's container and returns how long it takes until a watch shows this.
func (s *fakeStage) exit(ctx context.Context, name string) (time.Duration, error) {
	ctx, cancel := within(ctx, 30*time.Second)
	defer cancel()
	at := time.Now()
	if err := s.runtime.Exit("default/"+name, "main", 3); err != nil {
		return 0, err
	}
	lives, err := s.watch.until(ctx, "shown as ended", []string{name}, func(l Life) bool { return !l.Exited.IsZero() })
	if err != nil {
		return 0, err
	}
	return lives[0].Exited.Sub(at), nil
}
