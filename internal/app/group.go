package app

import (
	"context"
	"fmt"
	"log/slog"
)

// group runs parts. They are started in the order of the calls of start, and stopped in reverse order: each is stopped
// when all that were started after it have ended.
type group struct {
	log    *slog.Logger
	parts  []*part
	failed chan error // capacity 1: the first failure counts
}

type part struct {
	name string
	stop context.CancelFunc
	done chan struct{}
}

func newGroup(log *slog.Logger) *group { return &group{log: log, failed: make(chan error, 1)} }

// start runs a part with a context of its own. That context does not end with the agent's: wait cancels it.
func (g *group) start(name string, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	p := &part{name: name, stop: cancel, done: make(chan struct{})}
	g.parts = append(g.parts, p)
	go func() {
		defer close(p.done)
		defer func() {
			if value := recover(); value != nil {
				g.log.Error("panic in an essential part", "part", name, "panic", value)
				// ends the process with status 2 and the stack
				panic(fmt.Sprintf("part %s failed: %v", name, value))
			}
		}()
		if err := run(ctx); err != nil && ctx.Err() == nil {
			select {
			case g.failed <- fmt.Errorf("%s: %w", name, err):
			default:
			}
		}
	}()
}

// wait returns when ctx ends or a part fails, after all parts have stopped.
func (g *group) wait(ctx context.Context) error {
	var err error
	select {
	case <-ctx.Done():
	case err = <-g.failed:
	}
	for i := len(g.parts) - 1; i >= 0; i-- {
		p := g.parts[i]
		p.stop()
		<-p.done
		g.log.Debug("stopped", "part", p.name)
	}
	return err
}
