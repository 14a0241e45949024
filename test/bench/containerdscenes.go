package bench

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"keelson/test/rig"
)

// rounds is the number of rounds. In each one all contenders are measured in turn.
const rounds = 3

// playSingle starts and deletes one pod after the other.
func playSingle(ctx context.Context, r *run) error {
	readyIn, goneIn, stopIn := map[string]Samples{}, map[string]Samples{}, Samples{}
	asks, memory := map[string]float64{}, map[string]float64{}
	pods := map[string]int{}
	each := max(1, (r.cfg.Runs+rounds-1)/rounds)
	err := r.onRealStage(ctx, func(ctx context.Context, s *realStage) error {
		for round := range rounds {
			for _, c := range r.contenders() {
				if err := s.put(ctx, c); err != nil {
					return err
				}
				if round == 0 {
					rss, err := s.emptyMemory(ctx)
					if err != nil {
						return err
					}
					memory[c.who] = rss
				}
				var from int64
				for i := range each + 1 {
					if i == 1 { // the first one meets cold caches
						var err error
						if from, err = s.audit.size(); err != nil {
							return err
						}
					}
					l, err := s.one(ctx, fmt.Sprintf("single-%d-%s-%d", round, c.who, i))
					if err != nil {
						return err
					}
					if i > 0 {
						readyIn[c.who] = append(readyIn[c.who], l.Ready.Sub(l.Added))
						goneIn[c.who] = append(goneIn[c.who], l.Gone.Sub(l.Deleting))
					}
				}
				// Requests after the deletion of the last pod still count for it.
				if err := pause(ctx, time.Second); err != nil {
					return err
				}
				counts, err := s.audit.since(from)
				if err != nil {
					return err
				}
				total := 0
				for _, n := range counts {
					total += n
				}
				asks[c.who] += float64(total)
				pods[c.who] += each
				if round == 0 {
					r.say("%s asks for %d pods: %s", c.who, each, list(counts))
				}
			}
			s.clear()
			g, err := s.byHand(ctx, each, 1, noWait)
			if err != nil {
				return err
			}
			readyIn[Hand] = append(readyIn[Hand], g.starts...)
			stopIn = append(stopIn, g.stops...)
			r.say("round %d: ours %.0f ms, upstream %.0f ms, by hand %.0f ms; gone after %.0f, %.0f, %.0f ms", round+1,
				ms(readyIn[Ours].Median()), ms(readyIn[Upstream].Median()), ms(readyIn[Hand].Median()),
				ms(goneIn[Ours].Median()), ms(goneIn[Upstream].Median()), ms(stopIn.Median()))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for who := range asks {
		asks[who] /= float64(pods[who])
	}
	goneIn[Hand] = stopIn
	r.report.Times("F2", "create→Ready, one at a time", onReal, readyIn)
	r.report.Times("F5", "delete→gone", onReal, goneIn)
	r.report.Numbers("F7", "API requests a pod, made→Ready→gone", onReal, "", asks)
	r.report.Numbers("F9", "RSS without pods", onReal, "MiB", memory)
	if r.peer != "" {
		r.report.Hold(readyByPeer, ratio(readyIn[Ours].Median(), readyIn[Upstream].Median()), "")
		r.report.Hold(requests, ratio(asks[Ours], asks[Upstream]), "")
	}
	r.report.Hold(readyByHand, ratio(readyIn[Ours].Median(), readyIn[Hand].Median()), "")
	r.report.Hold(goneOver, ms(goneIn[Ours].Median()-stopIn.Median()), "")
	r.report.Hold(memoryEmpty, memory[Ours], "")
	return nil
}

// emptyMemory returns the kubelet's memory without pods, when it is idle.
func (s *realStage) emptyMemory(ctx context.Context) (float64, error) {
	if err := pause(ctx, 2*settle); err != nil {
		return 0, err
	}
	return resident(s.kubelet.Pid())
}

// one starts a pod, deletes it, and returns its times.
func (s *realStage) one(ctx context.Context, name string) (Life, error) {
	if _, _, err := s.start(ctx, time.Minute, []*corev1.Pod{pausePod(s.kubelet.Node, name)}); err != nil {
		return Life{}, err
	}
	if err := s.learn(ctx, name); err != nil {
		return Life{}, err
	}
	if err := pause(ctx, breath); err != nil { // so that work after Ready does not delay the deletion
		return Life{}, err
	}
	lives, err := s.end(ctx, time.Minute, []string{name})
	if err != nil {
		return Life{}, err
	}
	return lives[0], pause(ctx, breath)
}

// crowdSize is a usual number of pods that are created at once.
const crowdSize = 30

// playCrowd starts and deletes 30 pods at once.
func playCrowd(ctx context.Context, r *run) error {
	readyIn, goneIn := map[string]Samples{}, map[string]Samples{}
	err := r.onRealStage(ctx, func(ctx context.Context, s *realStage) error {
		for round := range 2 {
			for _, c := range r.contenders() {
				if err := s.put(ctx, c); err != nil {
					return err
				}
				if _, err := s.one(ctx, fmt.Sprintf("first-%d-%s", round, c.who)); err != nil {
					return err
				}
				g, err := s.group(ctx, fmt.Sprintf("crowd-%d-%s", round, c.who), crowdSize)
				if err != nil {
					return err
				}
				readyIn[c.who] = append(readyIn[c.who], g.ready...)
				if err := s.endGroup(ctx, &g); err != nil {
					return err
				}
				goneIn[c.who] = append(goneIn[c.who], g.gone...)
				r.say("%s: p50 %.0f ms, p99 %.0f ms, %.0f ms of CPU a pod, all gone in %.0f ms", c.who,
					ms(g.ready.Median()), ms(g.ready.P(0.99)), ms(g.cpu)/crowdSize, ms(g.deleted))
			}
			s.clear()
			g, err := s.byHand(ctx, crowdSize, 4, noWait)
			if err != nil {
				return err
			}
			readyIn[Hand] = append(readyIn[Hand], g.there...)
			r.say("by hand, 4 at a time: p50 %.0f ms, p99 %.0f ms, all stopped in %.0f ms", ms(g.there.Median()),
				ms(g.there.P(0.99)), ms(g.stopped))
		}
		return nil
	})
	r.report.Times("F2", "create→Ready, 30 at once (by hand 4 at a time)", onReal, readyIn)
	r.report.Times("F5", "delete→gone, 30 at once", onReal, goneIn)
	return err
}

// group is a number of pods that are created at once and deleted at once.
type group struct {
	names       []string
	ready, gone Samples
	cpu         time.Duration // of the kubelet, until all were ready
	deleted     time.Duration // from the first deletion to the last pod's end
}

// group starts n pods at once.
func (s *realStage) group(ctx context.Context, prefix string, n int) (group, error) {
	before, err := use(s.kubelet.Pid())
	if err != nil {
		return group{}, err
	}
	node := s.kubelet.Node
	names, lives, err := s.start(ctx, 10*time.Minute,
		several(n, prefix, func(name string) *corev1.Pod { return pausePod(node, name) }))
	if err != nil {
		return group{}, err
	}
	after, err := use(s.kubelet.Pid())
	if err != nil {
		return group{}, err
	}
	g := group{names: names, cpu: after.CPU - before.CPU}
	for _, l := range lives {
		g.ready = append(g.ready, l.Ready.Sub(l.Added))
	}
	return g, nil
}

// endGroup deletes the pods of a group at once.
func (s *realStage) endGroup(ctx context.Context, g *group) error {
	begin := time.Now()
	lives, err := s.end(ctx, 10*time.Minute, g.names)
	g.deleted = time.Since(begin)
	for _, l := range lives {
		g.gone = append(g.gone, l.Gone.Sub(l.Deleting))
	}
	return err
}

// playFull fills the node, measures it while it is idle, and deletes all pods.
func playFull(ctx context.Context, r *run) error {
	readyIn, cpu, wall := map[string]Samples{}, map[string]float64{}, map[string]float64{}
	idle, idleRt, switches, memory := map[string]float64{}, map[string]float64{}, map[string]float64{},
		map[string]float64{}
	n := r.cfg.Pods
	err := r.onRealStage(ctx, func(ctx context.Context, s *realStage) error {
		for _, c := range r.contenders() {
			if err := s.put(ctx, c); err != nil {
				return err
			}
			if _, err := s.one(ctx, "first-"+c.who); err != nil {
				return err
			}
			stop := r.profile(ctx, c, s.kubelet)
			g, err := s.group(ctx, "full-"+c.who, n)
			if err != nil {
				return err
			}
			stop()
			readyIn[c.who] = g.ready
			cpu[c.who] = ms(g.cpu) / float64(n)
			r.say("%s: %d pods, p50 %.1f s, p99 %.1f s, %.1f ms of CPU a pod; idling", c.who, n,
				g.ready.Median().Seconds(), g.ready.P(0.99).Seconds(), cpu[c.who])
			if err := s.rest(ctx, c.who, idle, idleRt, switches); err != nil {
				return err
			}
			if memory[c.who], err = resident(s.kubelet.Pid()); err != nil {
				return err
			}
			if err := s.endGroup(ctx, &g); err != nil {
				return err
			}
			wall[c.who] = g.deleted.Seconds()
			r.say("%s: idle %.2f %%, runtime %.2f %%, %.0f switches a second, %.0f MiB; all gone in %.1f s", c.who,
				idle[c.who], idleRt[c.who], switches[c.who], memory[c.who], wall[c.who])
		}
		s.clear()
		g, err := s.byHand(ctx, n, 4, func(ctx context.Context) (err error) {
			// The CPU of the runtime while no kubelet queries the pods.
			_, idleRt[Hand], _, err = atRest(ctx, [2]int{s.runtime.Pid(), s.runtime.Pid()})
			return err
		})
		readyIn[Hand], wall[Hand] = g.there, g.stopped.Seconds()
		return err
	})
	if err != nil {
		return err
	}
	size := fmt.Sprintf("%d pods", n)
	r.report.Times("F3", "create→Ready, "+size+" at once (by hand 4 at a time)", onReal, readyIn)
	r.report.Numbers("F3", "kubelet CPU a pod, "+size+" at once", onReal, "ms", cpu)
	r.report.Numbers("F3", "all deleted, "+size+" at once (by hand: stopped)", onReal, "s", wall)
	r.report.Numbers("F8", "idle CPU, "+size, onReal, "%", idle)
	r.report.Numbers("F8", "idle CPU of the runtime, "+size+" (by hand: no queries)", onReal, "%", idleRt)
	r.report.Numbers("F8", "idle context switches, "+size, onReal, "/s", switches)
	r.report.Numbers("F9", "RSS, "+size, onReal, "MiB", memory)
	note := ""
	if n != 110 {
		note = "at " + size
	}
	if r.peer != "" {
		r.report.Hold(fullP50, ratio(readyIn[Ours].Median(), readyIn[Upstream].Median()), note)
		r.report.Hold(fullP99, ratio(readyIn[Ours].P(0.99), readyIn[Upstream].P(0.99)), note)
		r.report.Hold(fullCPU, ratio(cpu[Ours], cpu[Upstream]), note)
		r.report.Hold(fullDelete, ratio(wall[Ours], wall[Upstream]), note)
		r.report.Hold(idleCPU, ratio(idle[Ours], idle[Upstream]), note)
		r.report.Hold(idleRuntime, ratio(idleRt[Ours], idleRt[Upstream]), note)
		r.report.Hold(idleSwitches, ratio(switches[Ours], switches[Upstream]), note)
	}
	r.report.Hold(memoryFull, memory[Ours], note)
	return nil
}

// rest measures the idle kubelet and the idle runtime for a minute.
func (s *realStage) rest(ctx context.Context, who string, idle, idleRt, switches map[string]float64) (err error) {
	idle[who], idleRt[who], switches[who], err = atRest(ctx, [2]int{s.kubelet.Pid(), s.runtime.Pid()})
	return err
}

// atRest measures two processes for a minute when they are idle. It returns the share of a CPU that each uses, in
// percent, and the context switches of the first per second.
func atRest(ctx context.Context, pids [2]int) (first, second, switches float64, err error) {
	if err := pause(ctx, 2*settle); err != nil {
		return 0, 0, 0, err
	}
	var before, after [2]Use
	for i := range before {
		if before[i], err = use(pids[i]); err != nil {
			return 0, 0, 0, err
		}
	}
	begin := time.Now()
	if err := pause(ctx, idleFor); err != nil {
		return 0, 0, 0, err
	}
	for i := range after {
		if after[i], err = use(pids[i]); err != nil {
			return 0, 0, 0, err
		}
	}
	took := time.Since(begin)
	share := func(i int) float64 { return 100 * float64(after[i].CPU-before[i].CPU) / float64(took) }
	return share(0), share(1), float64(after[0].Switches-before[0].Switches) / took.Seconds(), nil
}

// playRestart restarts the kubelet while pods with readiness probes run.
func playRestart(ctx context.Context, r *run) error {
	const port = 8080
	n := r.cfg.Pods
	if len(r.cfg.Only) == 0 {
		n = min(n, crowdSize) // a full node takes minutes
	}
	readyIn, ends, flips := map[string]float64{}, map[string]float64{}, map[string]float64{}
	err := r.onRealStage(ctx, func(ctx context.Context, s *realStage) error {
		for _, c := range r.contenders() {
			if err := s.put(ctx, c); err != nil {
				return err
			}
			node := s.kubelet.Node
			names, _, err := s.start(ctx, 10*time.Minute, several(n, "restart-"+c.who, func(name string) *corev1.Pod {
				return served(probed(pausePod(node, name), port), port)
			}))
			if err != nil {
				return err
			}
			s.kubelet.Stop()
			took, err := s.restart(ctx)
			if err != nil {
				return err
			}
			readyIn[c.who] = ms(took)
			// Two periods of the probes: after that, every Ready condition that changes has changed.
			if err := pause(ctx, 25*time.Second); err != nil {
				return err
			}
			for _, name := range names {
				l := s.watch.life(name)
				ends[c.who] += float64(l.Restarts)
				flips[c.who] += float64(l.Flips)
			}
			r.say("%s: node Ready after %.0f ms, %.0f restarts, %.0f transitions", c.who, readyIn[c.who], ends[c.who],
				flips[c.who])
			if _, err := s.end(ctx, 10*time.Minute, names); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	size := fmt.Sprintf("%d probed pods", n)
	r.report.Numbers("F12", "restart, "+size+": exec→node reported Ready", onReal, "ms", readyIn)
	r.report.Numbers("F12", "restart, "+size+": containers restarted", onReal, "", ends)
	r.report.Numbers("F12", "restart, "+size+": Ready transitions", onReal, "", flips)
	note := ""
	if n != 110 {
		note = "at " + size
	}
	r.report.Hold(restartReady, readyIn[Ours], note)
	r.report.Hold(restartEnds, ends[Ours], note)
	r.report.Hold(restartFlips, flips[Ours], note)
	return nil
}

// restart starts the kubelet and returns how long it took until a watch showed a Ready node status from the new
// process.
func (s *realStage) restart(ctx context.Context) (time.Duration, error) {
	ctx, cancel := within(ctx, time.Minute)
	defer cancel()
	node := metav1.ListOptions{FieldSelector: "metadata.name=" + s.kubelet.Node}
	list, err := s.cluster.Client.CoreV1().Nodes().List(ctx, node)
	if err != nil || len(list.Items) != 1 {
		return 0, fmt.Errorf("watch node: %d nodes, %w", len(list.Items), err)
	}
	old := heartbeat(&list.Items[0])
	node.ResourceVersion = list.ResourceVersion
	w, err := s.cluster.Client.CoreV1().Nodes().Watch(ctx, node)
	if err != nil {
		return 0, fmt.Errorf("watch node: %w", err)
	}
	defer w.Stop()
	begin := time.Now()
	up := make(chan error, 1)
	go func() { up <- s.kubelet.Start(ctx) }()
	var took time.Duration
	for took == 0 {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				return 0, fmt.Errorf("watch node: %w", context.Cause(ctx))
			}
			if n, ok := e.Object.(*corev1.Node); ok && rig.NodeReady(n) && heartbeat(n).After(old.Time) {
				took = time.Since(begin)
			}
		case <-ctx.Done():
			return 0, fmt.Errorf("wait for a node status: %w", context.Cause(ctx))
		}
	}
	return took, <-up
}

// heartbeat returns the time of the last heartbeat in the node's Ready condition.
func heartbeat(n *corev1.Node) metav1.Time {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.LastHeartbeatTime
		}
	}
	return metav1.Time{}
}
