package bench

import (
	"cmp"
	"context"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson/test/rig"
)

// onReal is the environment of figures that operators see.
const onReal = "containerd, API server"

// realStage is a node with containerd in a cluster. The kubelets run on it one after the other.
type realStage struct {
	run     *run
	rig     *rig.Rig
	runtime *rig.Runtime
	cluster *rig.Cluster
	audit   audit
	watch   *podWatch
	on      string       // the contender that runs
	kubelet *rig.Kubelet // nil before the first one
	hand    *template
	made    int // pods made by hand so far
}

// onRealStage makes a realStage, calls play, and removes everything.
func (r *run) onRealStage(ctx context.Context, play func(context.Context, *realStage) error) (err error) {
	s := &realStage{run: r}
	if s.rig, err = rig.Open(ctx, rig.Config{Purpose: "bench", Parts: r.cfg.Parts, Log: r.cfg.Log}); err != nil {
		return err
	}
	defer closing(&err, s.rig.Close)
	if s.runtime, err = s.rig.StartRuntime(ctx, rig.RuntimeConfig{}); err != nil {
		return err
	}
	var flags []string
	if s.audit, flags, err = newAudit(s.rig.Dir); err != nil {
		return err
	}
	if s.cluster, err = s.rig.StartCluster(ctx, rig.ClusterConfig{APIServerFlags: flags}); err != nil {
		return err
	}
	if s.watch, err = watchPods(ctx, s.cluster.Client, "default"); err != nil {
		return err
	}
	defer s.watch.close()
	r.say("containerd and the control plane are up")
	err = play(ctx, s)
	if err != nil && s.kubelet != nil {
		r.say("the kubelet's log ends: %s", s.kubelet.LogEnd())
	}
	return err
}

// put starts a kubelet and stops the one that runs.
func (s *realStage) put(ctx context.Context, c contender) (err error) {
	ctx, cancel := within(ctx, 2*time.Minute)
	defer cancel()
	s.on = c.who
	if s.kubelet != nil {
		return s.kubelet.Swap(ctx, c.binary)
	}
	s.kubelet, err = s.rig.StartKubelet(ctx,
		rig.KubeletConfig{Binary: c.binary, Edit: func(k *kubeletconfig.KubeletConfiguration) {
			k.StaticPodPath = ""
		}})
	return err
}

// clear stops the kubelet.
func (s *realStage) clear() {
	s.kubelet.Stop()
	s.on = ""
}

// start creates pods at once and returns their times when all are ready.
func (s *realStage) start(ctx context.Context, limit time.Duration, pods []*corev1.Pod) ([]string, []Life, error) {
	ctx, cancel := within(ctx, limit)
	defer cancel()
	names, err := create(ctx, s.cluster.Client, pods)
	if err != nil {
		return names, nil, err
	}
	lives, err := s.watch.until(ctx, "ready", names, isReady)
	return names, lives, err
}

// end deletes pods at once and returns their times when all are gone.
func (s *realStage) end(ctx context.Context, limit time.Duration, names []string) ([]Life, error) {
	ctx, cancel := within(ctx, limit)
	defer cancel()
	if err := remove(ctx, s.cluster.Client, names); err != nil {
		return nil, err
	}
	return s.watch.until(ctx, "gone", names, isGone)
}

// learn captures the configurations that a kubelet sends to the runtime, for the pods by hand. Only the first call has
// an effect.
func (s *realStage) learn(ctx context.Context, name string) (err error) {
	if s.hand != nil {
		return nil
	}
	uid := string(s.watch.life(name).pod.UID)
	s.hand, err = capture(ctx, s.runtime.CRI, uid, filepath.Join(s.rig.Dir, "hand"))
	return err
}

// handGroup has the times of a number of pods that were made by hand.
type handGroup struct {
	starts  Samples       // how long each start took
	there   Samples       // how long after the beginning each pod had started
	stops   Samples       // how long each stop took
	stopped time.Duration // from the first stop to the last pod's end
}

// byHand starts n pods by hand, atOnce at a time, calls meanwhile, and ends the pods.
func (s *realStage) byHand(
	ctx context.Context, n, atOnce int, meanwhile func(context.Context) error,
) (handGroup, error) {
	ctx, cancel := within(ctx, 10*time.Minute)
	defer cancel()
	cgroup := filepath.Join("/", s.rig.Name, "hand")
	pods := make([]handPod, n)
	g := handGroup{starts: make(Samples, n), there: make(Samples, n), stops: make(Samples, n)}
	begin := time.Now()
	first := s.made
	s.made += n
	err := eachOf(n, atOnce, func(i int) (err error) {
		pods[i], g.starts[i], err = s.hand.start(ctx, s.runtime.CRI, cgroup, first+i)
		g.there[i] = time.Since(begin)
		return err
	})
	if err == nil {
		err = meanwhile(ctx)
	}
	// The pods are stopped and removed also after an error.
	begin = time.Now()
	err = cmp.Or(err, eachOf(n, atOnce, func(i int) (err error) {
		g.stops[i], err = pods[i].stop(ctx, s.runtime.CRI)
		return err
	}))
	g.stopped = time.Since(begin)
	return g, cmp.Or(err, eachOf(n, atOnce, func(i int) error { return pods[i].remove(ctx, s.runtime.CRI) }))
}

// noWait is for byHand if the pods are ended at once.
func noWait(context.Context) error { return nil }

// eachOf calls f for each number below n, atOnce at a time.
func eachOf(n, atOnce int, f func(int) error) error {
	next, errs := make(chan int), make(chan error, n)
	for range atOnce {
		go func() {
			for i := range next {
				errs <- f(i)
			}
		}()
	}
	for i := range n {
		next <- i
	}
	close(next)
	var failed error
	for range n {
		if err := <-errs; err != nil {
			failed = err
		}
	}
	return failed
}
