package app

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/node/logind"
	"keelson/internal/node/shutdown"
	"keelson/internal/pods/pod"
)

// buildShutdown builds who ends pods before the machine shuts down.
func (a *agent) buildShutdown() {
	a.leaving = shutdown.New(shutdown.Config{
		Dial:    a.links.dialLogin,
		Allow:   func(delay time.Duration) error { return logind.Allow(logind.Dir, delay) },
		Periods: a.shutdownPeriods(), Pods: a.present, Settled: a.settled,
		End: func(uid types.UID, grace time.Duration) <-chan struct{} {
			return a.syncer.SendAway(uid, grace, shutdown.ReasonTerminated, shutdown.MessageEnded)
		},
		Events: a.events, Dir: a.cfg.Flags.RootDir, Log: a.log, Now: time.Now,
		OnChange: func() {
			a.node.Poke()
			if !a.leaving.Leaving() {
				a.syncer.WakeAll() // containers were not started during the shutdown, and may have to be now
			}
		},
	})
	a.metrics.MustRegister(a.leaving)
}

// shutdownPeriods are how long pods have before the machine shuts down; none if it
// does not wait for them.
func (a *agent) shutdownPeriods() []shutdown.Period {
	k, gates := &a.cfg.Kubelet, a.cfg.Gates
	switch {
	case !gates.Enabled("GracefulNodeShutdown"):
		return nil
	case len(k.ShutdownGracePeriodByPodPriority) == 0 || !gates.Enabled("GracefulNodeShutdownBasedOnPodPriority"):
		return shutdown.Periods(k.ShutdownGracePeriod.Duration, k.ShutdownGracePeriodCriticalPods.Duration)
	}
	var out []shutdown.Period
	for _, p := range k.ShutdownGracePeriodByPodPriority {
		out = append(out, shutdown.Period{Priority: p.Priority, Length: pod.Seconds(p.ShutdownGracePeriodSeconds)})
	}
	return out
}

// present are the pods that a shutdown has to end: those that take up the node, and
// those of an agent before this one that were not looked at yet.
func (a *agent) present() []*v1.Pod {
	pods := a.allocation.Account()
	have := map[types.UID]bool{}
	for _, p := range pods {
		have[p.UID] = true
	}
	for _, uid := range a.desired.UIDs() {
		p, _, known := a.desired.Get(uid)
		// What could not be read yet may as well have come during the shutdown; it is
		// looked at again when it was read.
		seen, read := a.observed.Get(uid)
		if known && !have[uid] && (pod.IsStatic(p) || !pod.IsTerminal(p)) && read && !seen.Empty() {
			pods = append(pods, p)
		}
	}
	return pods
}

// dialLogin connects to the machine's login manager.
func (l Links) dialLogin(ctx context.Context) (shutdown.Session, error) {
	if l.Login != nil {
		return l.Login(ctx)
	}
	s, err := logind.Dial(ctx)
	if err != nil {
		return nil, err // not s: a nil of its type is no nil of the interface
	}
	return s, nil
}
