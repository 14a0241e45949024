package podplan

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"keelson/internal/pods/pod"
)

// deleted is a pod whose deletion was requested.
func deleted(grace int64) *v1.Pod {
	p := spec("a", v1.RestartPolicyAlways)
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: now}, ptr.To(grace)
	return p
}

func withDeadline(seconds int64) *v1.Pod {
	p := spec("a", v1.RestartPolicyAlways)
	p.Spec.ActiveDeadlineSeconds = ptr.To(seconds)
	return p
}

func ended(phase v1.PodPhase) *v1.Pod {
	p := spec("a", v1.RestartPolicyAlways)
	p.Status.Phase = phase
	return p
}

// evicted is the record of an eviction with this grace period.
func evicted(reason TerminationReason, left time.Duration) *EvictionRecord {
	return &EvictionRecord{
		Deadline: now.Add(left),
		Reason:   reason,
		Override: Override{Phase: v1.PodFailed, Reason: string(reason)},
	}
}

func TestTerminate(t *testing.T) {
	up := have(true, running("a"))
	plain := spec("a", v1.RestartPolicyAlways)
	for _, tc := range []struct {
		name  string
		pod   *v1.Pod
		in    Input
		want  TerminationReason // empty: the pod is not terminated
		left  time.Duration
		shown string // status reason of the override
	}{
		{"no reason to terminate", plain, Input{Have: up}, "", 0, ""},
		{"it is deleted", deleted(7), Input{Have: up}, Deleted, 7 * time.Second, ""},
		{
			"its source has removed it",
			plain,
			Input{Have: up, Source: Source{Missing: true}},
			SourceRemoved,
			30 * time.Second,
			"",
		},
		{
			"its object was removed while it was being deleted", deleted(600),
			Input{Have: up, Source: Source{Missing: true}}, ForceDeleted, time.Second, "",
		},
		{
			"its object was removed long before its time is over", deleted(600),
			Input{
				Have:   up,
				Source: Source{Missing: true},
				Termination: &Termination{
					Reason:   Deleted,
					Grace:    600 * time.Second,
					Deadline: now.Add(599 * time.Second),
				},
			},
			Deleted, time.Second, "",
		},
		{
			"its object was removed before the deletion was seen", plain,
			Input{Have: up, Source: Source{Missing: true, Forced: true}}, ForceDeleted, time.Second, "",
		},
		{"its stored phase is terminal", ended(v1.PodSucceeded), Input{Have: up}, PhaseTerminal, 30 * time.Second, ""},
		{
			"the node rejects it", plain,
			Input{Admission: Admission{Rejection: &pod.Rejection{
				Reason:  "OutOfcpu",
				Message: "no",
			}}}, Rejected, 30 * time.Second, "OutOfcpu",
		},
		{
			"it has completed", spec("a", v1.RestartPolicyNever),
			Input{Have: have(true, exited("a", 0))}, Completed, 30 * time.Second, "",
		},
		{
			"its deadline is over", withDeadline(60),
			Input{
				Have:      up,
				Admission: Admission{Started: now.Add(-time.Minute)},
			}, DeadlineExceeded, 30 * time.Second, "DeadlineExceeded",
		},
		{
			"its deadline is to come",
			withDeadline(61),
			Input{Have: up, Admission: Admission{Started: now.Add(-time.Minute)}},
			"",
			0,
			"",
		},
		{
			"an eviction waits for its record", plain,
			Input{Have: up, Eviction: Eviction{Pending: evicted(Evicted, 5*time.Second), Since: now}}, "", 0, "",
		},
		{
			"an eviction that is recorded", plain,
			Input{Have: up, Eviction: Eviction{Pending: evicted(Evicted, 5*time.Second), Since: now, Recorded: true}},
			Evicted, 5 * time.Second, "evicted",
		},
		{
			"an eviction whose record takes too long", plain,
			Input{
				Have:     up,
				Eviction: Eviction{Pending: evicted(Evicted, 5*time.Second), Since: now.Add(-recordPatience)},
			},
			Evicted, 5 * time.Second, "evicted",
		},
		{
			"a deletion puts a pending eviction in force, which came first", deleted(2),
			Input{Have: up, Eviction: Eviction{Pending: evicted(Evicted, 5*time.Second), Since: now}},
			Evicted, 2 * time.Second, "evicted",
		},
		{
			"an eviction of an earlier agent, whose time is over", plain,
			Input{Have: up, Eviction: Eviction{Earlier: evicted(Preempted, -time.Hour)}}, Preempted, 0, "preempted",
		},
		{
			"the node shuts down", plain,
			Input{Have: up, Eviction: Eviction{Requests: []EvictionRecord{*evicted(NodeShutdown, 3*time.Second)}}},
			NodeShutdown, 3 * time.Second, "the node shuts down",
		},
		{
			"the first reason stays, and a shorter time counts from now", deleted(2),
			Input{
				Have:        up,
				Termination: &Termination{Reason: Completed, Grace: time.Minute, Deadline: now.Add(40 * time.Second)},
			},
			Completed, 2 * time.Second, "",
		},
		{
			"a longer time does not count", deleted(600),
			Input{
				Have:        up,
				Termination: &Termination{Reason: Completed, Grace: time.Minute, Deadline: now.Add(40 * time.Second)},
			},
			Completed, 40 * time.Second, "",
		},
		{
			"the time begins with the stop that reaches the runtime", deleted(7),
			Input{
				Have: up,
				Termination: &Termination{
					Reason: Deleted, Grace: 7 * time.Second, Deadline: now.Add(-time.Minute), Unreached: true,
				},
			},
			Deleted, 7 * time.Second, "",
		},
		{
			"that of an eviction goes on", plain,
			Input{
				Have: up,
				Termination: &Termination{
					Reason: Evicted, Grace: 7 * time.Second, Deadline: now.Add(time.Second), Unreached: true,
				},
			},
			Evicted, time.Second, "",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := tc.in
			in.Now, in.Pod = now, tc.pod
			plan := decide(in)
			got := plan.Termination
			if (got != nil) != (tc.want != "") {
				t.Fatalf("terminated: %+v, want %q", got, tc.want)
			}
			if got == nil {
				return
			}
			shown := ""
			if got.Override != nil {
				shown = got.Override.Reason
			}
			if got.Reason != tc.want || got.Deadline.Sub(now) != tc.left || shown != tc.shown {
				t.Errorf("%q in %v, shown as %q; want %q in %v, %q", got.Reason, got.Deadline.Sub(now), shown, tc.want,
					tc.left, tc.shown)
			}
			// To decide again changes nothing.
			in.Termination = got
			if again := decide(in).Termination; again.Reason != got.Reason || !again.Deadline.Equal(got.Deadline) {
				t.Errorf("decided again: %+v", again)
			}
		})
	}
}

// An evicted pod that has not ended in time is reported once.
func TestOverduePodIsReportedOnce(t *testing.T) {
	in := Input{
		Now:      now,
		Pod:      spec("a", v1.RestartPolicyAlways),
		Have:     have(true, running("a")),
		Eviction: Eviction{Requests: []EvictionRecord{*evicted(Evicted, time.Second)}},
	}
	plan := decide(in)
	if plan.Overdue || plan.Wake.IsZero() {
		t.Fatalf("overdue %t, wakes at %v", plan.Overdue, plan.Wake)
	}
	in.Eviction = Eviction{}
	for i, want := range []bool{true, false} {
		in.Now, in.Termination = now.Add(leastGoneBy), plan.Termination
		if plan = decide(in); plan.Overdue != want {
			t.Errorf("turn %d: overdue %t, want %t", i, plan.Overdue, want)
		}
	}
}

func TestStates(t *testing.T) {
	dead := pod.Runtime{}
	all := Holdings{
		Claims:      true,
		Resources:   true,
		Volumes:     true,
		Objects:     true,
		Cgroup:      true,
		CgroupFull:  true,
		Directories: true,
	}
	without := func(edit func(*Holdings)) Holdings {
		h := all
		h.Claims = false
		edit(&h)
		return h
	}
	gone := Source{Missing: true}
	for _, tc := range []struct {
		name string
		in   Input
		want State
		step string // the first
		down bool
	}{
		{"the runtime was not listed", Input{RuntimeUnlisted: true}, Pending, "", false},
		{"what it holds could not be read", Input{RuntimeUnread: true}, Pending, "", false},
		{
			"a source has not synced",
			Input{Source: Source{Missing: true, Unsynced: true}, Have: have(true, running("a"))},
			Pending,
			"",
			false,
		},
		{"another pod has the name", Input{Pod: spec("a", v1.RestartPolicyAlways), NameTaken: true}, Pending, "", false},
		{
			"it was removed while it waited for the name",
			Input{Pod: spec("a", v1.RestartPolicyAlways), NameTaken: true, Source: gone},
			Gone,
			"",
			false,
		},
		{"records are to be read", Input{Pod: spec("a", v1.RestartPolicyAlways)}, Pending, "recover", false},
		{"it is to be admitted", Input{Pod: spec("a", v1.RestartPolicyAlways), Recovered: true}, Pending, "admit", false},
		{
			"it waits for other pods",
			Input{
				Pod:       spec("a", v1.RestartPolicyAlways),
				Recovered: true,
				Admission: Admission{State: Waiting},
			}, Pending, "", false,
		},
		{
			"devices are to be confirmed",
			Input{
				Pod:       spec("a", v1.RestartPolicyAlways),
				Recovered: true,
				Admission: Admission{State: Granted, Unconfirmed: true},
			},
			Pending, "confirm resources", false,
		},
		{
			"it is granted what it needs",
			Input{
				Pod:       spec("a", v1.RestartPolicyAlways),
				Recovered: true,
				Admission: Admission{State: Granted},
				Readiness: Readiness{NetworkReady: true},
			},
			Syncing, "run sandbox", false,
		},
		{
			"it is deleted and runs",
			Input{Pod: deleted(1), Recovered: true, Have: have(true, running("a"))},
			Terminating,
			"stop",
			false,
		},
		{
			"it is deleted and was never admitted",
			Input{Pod: deleted(1), Recovered: true, Held: all},
			Terminated,
			"unprepare claims",
			false,
		},
		{
			"it may still be given something",
			Input{
				Pod:       deleted(1),
				Recovered: true,
				Held:      all,
				Busy:      map[Key]Task{KeyOf(Admit, ThePod): {Verb: Admit}},
			}, Terminated, "", false,
		},
		{
			"its claims are unprepared",
			Input{Pod: deleted(1), Recovered: true, Held: without(func(*Holdings) {})},
			Terminated,
			"release resources",
			false,
		},
		{
			"its resources are released",
			Input{
				Pod:       deleted(1),
				Recovered: true,
				Held:      without(func(h *Holdings) { h.Resources = false }),
			}, Terminated, "unmount volumes", true,
		},
		{
			"a container is being started", Input{
				Pod:       deleted(1),
				Recovered: true,
				Busy:      map[Key]Task{{Target: Container("a")}: {Verb: Start}},
			},
			Terminating, "", false,
		},
		{
			"a sandbox has died",
			Input{Pod: deleted(1), Recovered: true, Have: have(false)},
			Terminating,
			"stop sandbox",
			false,
		},
		{
			"it holds a cgroup alone", Input{
				Pod:       deleted(1),
				Recovered: true,
				Held:      Holdings{Cgroup: true, Directories: true},
			},
			Terminated, "remove cgroup", true,
		},
		{
			"its cgroup is being reduced, and is not removed meanwhile", Input{
				Pod:       deleted(1),
				Recovered: true,
				Held:      Holdings{Cgroup: true, Directories: true},
				Busy:      map[Key]Task{KeyOf(ReduceCgroup, ThePod): {Verb: ReduceCgroup}},
			},
			Terminated, "", true,
		},
		{
			"its cgroup is being resized, and is not removed meanwhile", Input{
				Pod:       deleted(1),
				Recovered: true,
				Held:      Holdings{Cgroup: true, Directories: true},
				Busy:      map[Key]Task{KeyOf(Resize, ThePod): {Verb: Resize}},
			},
			Terminated, "", true,
		},
		{"it holds nothing", Input{Pod: deleted(1), Recovered: true, Held: Holdings{Directories: true}}, Released, "", true},
		{
			"no source has it", Input{
				Pod:       deleted(1),
				Recovered: true,
				Source:    gone,
				Held:      Holdings{Directories: true},
			},
			Released, "remove directories", true,
		},
		{
			"its directory is about to be made",
			Input{Pod: deleted(1), Recovered: true, Source: gone, Held: Holdings{Directories: true},
				Busy: map[Key]Task{KeyOf(RecordEviction, ThePod): {Verb: RecordEviction}}},
			Released, "", true,
		},
		{"nothing of it is left", Input{Pod: deleted(1), Recovered: true, Source: gone}, Gone, "", true},
		{
			"the API server knows of the restart that is recorded",
			Input{
				Pod:       spec("a", v1.RestartPolicyAlways),
				Recovered: true,
				Admission: Admission{State: Admitted},
				History:   History{RestartsRecorded: true},
			},
			Syncing, "record restarts", false,
		},
		{
			"it terminates, and a restart is recorded that the API server knows of",
			Input{
				Pod:       deleted(1),
				Recovered: true,
				History:   History{RestartsRecorded: true},
				Held:      Holdings{Cgroup: true},
			},
			Terminated, "record restarts", true,
		},
		{
			"its records are being written",
			Input{Pod: deleted(1), Recovered: true, Source: gone, Held: Holdings{Directories: true},
				Busy: map[Key]Task{KeyOf(WriteRestarts, ThePod): {Verb: WriteRestarts}}},
			Released, "", true,
		},
		{
			"its logs are being linked, and are not removed meanwhile",
			Input{Pod: deleted(1), Recovered: true, Source: gone, Have: have(false, exited("a", 0)),
				Held: Holdings{Cgroup: true},
				Busy: map[Key]Task{KeyOf(LinkLogs, ThePod): {Verb: LinkLogs}}},
			Terminated, "remove cgroup", false,
		},
		{
			"only the runtime knows it",
			Input{Source: gone, Have: have(true, running("a")), Held: all},
			Terminating,
			"stop",
			false,
		},
		{
			"only the disk knows it",
			Input{Source: gone, Adopted: true, Have: dead, Held: all},
			Terminated,
			"unprepare claims",
			false,
		},
		{"a late event of a pod that is gone", Input{Source: gone, Held: all}, Gone, "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := tc.in
			in.Now = now
			plan := Decide(in)
			first := ""
			for _, s := range plan.Steps {
				if !s.Verb.Immediate() || in.State >= Terminating || s.Verb != FetchImage {
					first = string(s.Verb)
					break
				}
			}
			if plan.State != tc.want || first != tc.step || plan.Down != tc.down {
				t.Errorf("%v, first %q, down %t; want %v, %q, %t", plan.State, first, plan.Down, tc.want, tc.step,
					tc.down)
			}
		})
	}
}

// The scheduler places another pod as soon as the status of one is terminal. So a pod is not shown as ended
// while its sandbox holds an address and host ports, as a dead sandbox does until it is stopped.
func TestPodIsDownWithItsSandbox(t *testing.T) {
	for _, tc := range []struct {
		name           string
		ready, stopped bool
		want           bool
	}{
		{"it runs", true, false, false},
		{"it died", false, false, false},
		{"it was stopped", false, true, true},
	} {
		in := Input{Pod: deleted(1), Have: have(tc.ready)}
		in.SandboxStopped = map[string]bool{"s0": tc.stopped}
		if got := decide(in).Down; got != tc.want {
			t.Errorf("%s: down %t, want %t", tc.name, got, tc.want)
		}
	}
}
