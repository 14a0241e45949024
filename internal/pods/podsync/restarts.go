package podsync

import (
	"context"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
	"keelson/internal/pods/podplan"
)

// restarts are what is known of restarts of the pod's containers. See [podplan.History] and [podplan.View].
type restarts struct {
	backoff           map[string]podplan.Backoff
	ran               map[string]int
	announced         map[string]bool
	replaced          map[string]time.Time
	stoppedForRestart map[string]bool
	recreated         map[string]int
	trigger           string         // the container whose exit has restarted all, until it starts again
	recorded          map[string]int // the part of recreated that is recorded on the disk
	logAttempts       map[string]int
	journal           *journal
}

func newRestarts(uid types.UID, disk RestartRecords) restarts {
	return restarts{
		backoff:           map[string]podplan.Backoff{},
		ran:               map[string]int{},
		announced:         map[string]bool{},
		replaced:          map[string]time.Time{},
		stoppedForRestart: map[string]bool{},
		recreated:         map[string]int{},
		logAttempts:       map[string]int{},
		journal: &journal{
			uid:  uid,
			disk: disk,
		},
	}
}

// keep drops containers that are gone.
func (r *restarts) keep(have pod.Runtime) {
	gone := func(id string) bool {
		_, held := have.ByID(id)
		return !held
	}
	maps.DeleteFunc(r.stoppedForRestart, func(id string, _ bool) bool { return gone(id) })
	maps.DeleteFunc(r.replaced, func(id string, _ time.Time) bool { return gone(id) })
	maps.DeleteFunc(r.announced, func(id string, _ bool) bool { return gone(id) })
}

func (r *restarts) history() podplan.History {
	return podplan.History{
		Backoff:          r.backoff,
		Announced:        r.announced,
		Replaced:         r.replaced,
		Ran:              r.ran,
		RestartsRecorded: len(r.recorded) > 0,
	}
}

// recover adds what an earlier agent has recorded.
func (r *restarts) recover(earlier Restarts) {
	r.recorded = earlier.Anew
	r.recreated = maps.Clone(r.recreated)
	maps.Copy(r.recreated, earlier.Anew)
	for _, id := range earlier.StoppedForRestart {
		r.stoppedForRestart[id] = true
	}
	r.journal.written(r.state())
}

// recordStop records that a container is stopped only to be started again: its exit status would not show that.
func (r *restarts) recordStop(id string) {
	r.stoppedForRestart[id] = true
	r.journal.set(r.state())
}

// record records which containers a restart of all containers removes.
func (r *restarts) record() {
	if maps.Equal(r.recorded, r.recreated) {
		return // recorded already, for another container
	}
	r.recorded = maps.Clone(r.recreated)
	r.journal.set(r.state())
}

// state is what is recorded on the disk.
func (r *restarts) state() Restarts {
	return Restarts{
		StoppedForRestart: slices.Sorted(maps.Keys(r.stoppedForRestart)),
		Anew:              r.recorded,
	}
}

// count increases the container's back-off if its start is a restart. This also holds for a start that fails.
func (r *restarts) count(v *podplan.View, spec *v1.Container, now time.Time, limits podplan.BackoffLimits) {
	last, again := v.Instance(spec.Name)
	counts := again && !v.WasStoppedForRestart(last)
	if before, ok := r.replaced[last.ID]; ok {
		counts = !before.IsZero()
		delete(r.replaced, last.ID)
	}
	if _, recreated := v.RecreatedAs(spec.Name); recreated && r.trigger == spec.Name {
		counts = true // the containers restarted with it have not failed
		r.trigger = ""
	}
	if counts {
		r.backoff[spec.Name] = r.backoff[spec.Name].For(spec).Next(now, limits)
	}
}

// endedBefore returns when the newest ended instance of the container ended.
func endedBefore(have pod.Runtime, name string) time.Time {
	for _, c := range have.Instances(name) {
		if c.State == pod.StateExited {
			return c.FinishedAt
		}
	}
	return time.Time{}
}

// writeRestarts clears the record of a restart of all containers.
func (do performer) writeRestarts() work {
	do.w.restarts.recorded = nil
	do.w.restarts.journal.set(do.w.restarts.state())
	journal, log := do.w.restarts.journal, do.w.log
	return func(context.Context) (result, error) {
		journal.flush(log)
		return result{}, nil
	}
}

// journal writes to the disk which restarts are under way, for a later agent. The worker sets the whole state, and
// tasks flush it before they stop or remove anything. Writes are made one after another, each with the newest state.
type journal struct {
	uid  types.UID
	disk RestartRecords

	writing sync.Mutex // held during a write; locked before mu

	mu      sync.Mutex
	now     Restarts
	changed bool // now is not on the disk
}

// set replaces the state. It does not block.
func (j *journal) set(r Restarts) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !reflect.DeepEqual(j.now, r) {
		j.now, j.changed = r, true
	}
}

// written stores the state that is on the disk.
func (j *journal) written(r Restarts) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.now, j.changed = r, false
}

// flush returns when the newest state was written. If that fails, a later agent decides by what the runtime shows and
// by restart policies.
func (j *journal) flush(log *slog.Logger) {
	j.writing.Lock()
	defer j.writing.Unlock()
	j.mu.Lock()
	now, changed := j.now, j.changed
	j.changed = false
	j.mu.Unlock()
	if !changed {
		return
	}
	if err := j.disk.NoteRestarts(j.uid, now); err != nil {
		log.Warn("failed to record which containers are being restarted", "err", err)
	}
}
