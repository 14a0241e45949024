package bench

import (
	"context"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson/test/rig"
)

// onReal names the ground of figures that operators see.
const onReal = "containerd, API server"

// realStage is a node on containerd in a cluster; one kubelet after the other
// is put on it.
type realStage struct {
	run     *run
	rig     *rig.Rig
	runtime *rig.Runtime
	cluster *rig.Cluster
	audit   audit
	watch   *podWatch
	on      string       // who is on the stage
	kubelet *rig.Kubelet // nil before the first one
	hand    *template
	made    int // pods made by hand so far
}

// onRealStage builds the stage, plays, and takes everything away.
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
		r.say("the kubelet's log ends: %s", tail(s.kubelet.LogFile, 5))
	}
	return err
}

// put puts a kubelet on the stage in place of the one that is there.
func (s *realStage) put(ctx context.Context, c contender) (err error) {
	ctx, cancel := within(ctx, 2*time.Minute)
	defer cancel()
	s.on = c.who
	if s.kubelet != nil {
		return s.kubelet.Swap(ctx, c.binary)
	}
	s.kubelet, err = s.rig.StartKubelet(ctx, rig.KubeletConfig{Binary: c.binary, Edit: func(k *kubeletconfig.KubeletConfiguration) {
		k.StaticPodPath = ""
	}})
	return err
}

// clear takes the kubelet off the stage.
func (s *realStage) clear() {
	s.kubelet.Stop()
	s.on = ""
}

// start creates pods at once and returns their lives when all are ready.
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

// end deletes pods at once and returns their lives when all are gone.
func (s *realStage) end(ctx context.Context, limit time.Duration, names []string) ([]Life, error) {
	ctx, cancel := within(ctx, limit)
	defer cancel()
	if err := remove(ctx, s.cluster.Client, names); err != nil {
		return nil, err
	}
	return s.watch.until(ctx, "gone", names, isGone)
}

// learn captures what our kubelet tells the runtime, for the pods by hand.
func (s *realStage) learn(ctx context.Context, name string) (err error) {
	if s.hand != nil {
		return nil
	}
	uid := string(s.watch.life(name).pod.UID)
	s.hand, err = capture(ctx, s.runtime.CRI, uid, filepath.Join(s.rig.Dir, "hand"))
	return err
}

// byHand starts and ends n pods by hand, so many at a time, and returns how long
// each start took, when each pod was there after the beginning, and how long
// each stop took.
func (s *realStage) byHand(ctx context.Context, n, atOnce int) (starts, there, stops Samples, err error) {
	ctx, cancel := within(ctx, 10*time.Minute)
	defer cancel()
	cgroup := filepath.Join("/", s.rig.Name, "hand")
	pods := make([]handPod, n)
	starts, there, stops = make(Samples, n), make(Samples, n), make(Samples, n)
	begin := time.Now()
	first := s.made
	s.made += n
	err = eachOf(n, atOnce, func(i int) (err error) {
		pods[i], starts[i], err = s.hand.start(ctx, s.runtime.CRI, cgroup, first+i)
		there[i] = time.Since(begin)
		return err
	})
	e := eachOf(n, atOnce, func(i int) (err error) {
		stops[i], err = pods[i].end(ctx, s.runtime.CRI)
		return err
	})
	if err == nil {
		err = e
	}
	return starts, there, stops, err
}

// eachOf calls f for each number below n, so many at a time.
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

func tail(file string, lines int) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	at := len(data)
	for at > 0 && lines >= 0 {
		at--
		if data[at] == '\n' {
			lines--
		}
	}
	return string(data[at:])
}
