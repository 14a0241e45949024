package differ

import (
	"context"
	"fmt"
	"io"
	"time"
)

// How many lives run at a time: on the fake runtime, and on containerd.
const (
	perHistory     = 100
	perRealHistory = 20
)

func (s *Stage) atATime() int {
	if s.cfg.Real {
		return perRealHistory
	}
	return perHistory
}

// Plan is the plan of a run.
type Plan struct {
	Seed   uint64 // of the first history; the next one's is one more
	Pods   int
	Lives  []int         // run only these of the first history; all if empty
	Within time.Duration // no history is begun after this long; no bound if 0
	Again  bool          // run the lives of differences again
	Shrink bool
	Plain  bool // pods of few features
}

// kind is the kind of the generated pods.
func (p Plan) kind(onReal bool) podKind {
	switch {
	case onReal:
		return realPods
	case p.Plain:
		return plainPods
	}
	return allPods
}

// Sum is the result of a run.
type Sum struct {
	Seed              uint64
	Histories, Pods   int
	Refused, Restless int
	Differ, Followed  int         // lives that differed, and differences after their first ones
	Left              [2][]string // what was not removed, ours and theirs
	Ruled             map[*Rule]int
	Groups            []*Group // that showed again when their lives were run again
	Unsteady          []*Group // that did not
}

// Run runs the histories of a plan.
func (s *Stage) Run(ctx context.Context, plan Plan) (*Sum, error) {
	sum := &Sum{Seed: plan.Seed, Ruled: map[*Rule]int{}}
	var all []Difference
	began := time.Now() // opening a stage may take longer than the plan allows
	kind := plan.kind(s.cfg.Real)
	for left := plan.Pods; left > 0; left -= s.atATime() {
		if plan.Within > 0 && time.Since(began) > plan.Within {
			break
		}
		h := Draw(plan.Seed+uint64(sum.Histories), min(left, s.atATime()), kind)
		if len(plan.Lives) > 0 {
			h.Lives = nil
			for _, i := range plan.Lives {
				h.Lives = append(h.Lives, drawLife(plan.Seed, i, kind))
			}
			left = 0
		}
		played, err := s.Play(ctx, h)
		if err != nil {
			return nil, err
		}
		sum.Histories++
		sum.Pods += len(h.Lives)
		sum.Refused += played.Refused
		sum.Restless += played.Restless
		sum.Differ += played.Differ
		sum.Followed += played.Followed
		for i := range sum.Left {
			sum.Left[i] = append(sum.Left[i], played.Left[i]...)
		}
		for r, n := range played.Ruled {
			sum.Ruled[r] += n
		}
		all = append(all, played.Differences...)
		s.say("seed %d: %d pods, %d refused, %d differ, in %d ways; %d waits too long; CPU: %s", h.Seed, len(h.Lives),
			played.Refused, played.Differ,
			len(Groups(played.Differences)), played.Restless, s.cost())
	}
	groups := Groups(all)
	if len(groups) == 0 || !plan.Again {
		sum.Groups = groups
		return sum, nil
	}
	s.say("%d differences are looked at again", len(groups))
	var err error
	if sum.Groups, sum.Unsteady, err = s.again(ctx, groups); err != nil {
		return nil, err
	}
	if plan.Shrink {
		s.say("%d differences are steady and are shrunk", len(sum.Groups))
		err = s.shrink(ctx, sum.Groups)
	}
	return sum, err
}

// Print prints the sum of a run.
func (s *Sum) Print(out io.Writer) error {
	if err := Report(out, s.Groups); err != nil {
		return err
	}
	for _, g := range s.Unsteady {
		fmt.Fprintf(out, "\nonce, and not again: %s\n  %d times, in %d lives, such as %s\n  ours:   %s\n  theirs: %s\n",
			g.Signature, g.Count, len(g.Lives),
			g.Lives[0], g.First.Ours, g.First.Theirs)
	}
	fmt.Fprintf(
		out,
		"\nseeds %d to %d: %d pods under both agents, %d of them refused; %d differ, in %d ways and %d more that did not show again\n",
		s.Seed,
		s.Seed+uint64(max(s.Histories, 1))-1,
		s.Pods,
		s.Refused,
		s.Differ,
		len(s.Groups),
		len(s.Unsteady),
	)
	fmt.Fprintf(out, "left behind when all pods were gone: %d by ours, %d by theirs\n", len(s.Left[0]), len(s.Left[1]))
	for _, what := range s.Left[0] {
		fmt.Fprintf(out, "  ours: %s\n", what)
	}
	for _, r := range Rules {
		if n := s.Ruled[r]; n > 0 {
			fmt.Fprintf(out, "%6d times by rule: %s\n", n, r.Why)
		} else {
			fmt.Fprintf(out, "  no more by rule: %s\n", r.Why)
		}
	}
	return nil
}
