package podsync

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/allocation"
	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
)

// Eviction is how a pod is evicted.
type Eviction struct {
	Grace time.Duration
	// AtOnce kills its containers without SIGTERM.
	AtOnce  bool
	Message string
	// Disrupts says that the pod itself is not the cause of its eviction.
	Disrupts bool
}

// Evict evicts a pod. It returns at once; a pod that is terminating already keeps its first reason. The channel is
// closed when the pod holds no resources of the node any more.
func (s *Syncer) Evict(uid types.UID, e Eviction) (released <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, ok := s.workers[uid]
	if !ok {
		return closed() // it has ended meanwhile
	}
	o := podplan.Override{
		Phase:   v1.PodFailed,
		Reason:  pod.ReasonEvicted,
		Message: e.Message,
		Lenient: true,
	}
	if e.Disrupts {
		o.Disruption = v1.PodReasonTerminationByKubelet
	}
	w.mail.request(request{
		EvictionRecord: podplan.EvictionRecord{
			AtOnce:   e.AtOnce,
			Deadline: s.cfg.Now().Add(e.Grace),
			Reason:   podplan.Evicted,
			Override: o,
		},
		record: true,
	})
	return w.ends.released
}

// preempt ends a pod so that another one can run.
func (s *Syncer) preempt(v allocation.Victim) {
	record := podplan.EvictionRecord{
		Deadline: s.cfg.Now().Add(v.Grace),
		Reason:   podplan.Preempted,
		Override: podplan.Override{
			Phase:             v1.PodFailed,
			Reason:            v.Reason,
			Message:           v.Message,
			Disruption:        v1.PodReasonTerminationByKubelet,
			DisruptionMessage: v.Disruption,
			Lenient:           true,
		},
	}
	// The victim may have been admitted together with other pods and have no worker yet. Its end is waited for, too.
	s.withWorker(v.UID, func(m *mailbox) { m.request(request{EvictionRecord: record, record: true}) })
}

// EndForShutdown ends the pod because the node shuts down: with the given status reason and message, unless it has
// completed by then. A pod that is terminating already only gets less time. The channel is closed when all that the pod
// held is released.
func (s *Syncer) EndForShutdown(uid types.UID, grace time.Duration, reason, message string) <-chan struct{} {
	// It is not recorded on the disk: the same pod may run after the next boot.
	record := podplan.EvictionRecord{
		Deadline: s.cfg.Now().Add(grace),
		Reason:   podplan.NodeShutdown,
		Override: podplan.Override{
			Phase:      v1.PodFailed,
			Reason:     reason,
			Message:    message,
			Disruption: v1.PodReasonTerminationByKubelet,
			Lenient:    true,
		},
	}
	// A pod of an earlier agent may have no worker yet.
	w := s.withWorker(uid, func(m *mailbox) { m.request(request{EvictionRecord: record}) })
	if w == nil { // the agent ends
		return closed()
	}
	return w.ends.released
}

func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}
