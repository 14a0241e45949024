package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"

	v1beta1 "k8s.io/kubelet/config/v1beta1"

	"keelson/internal/config"
	"keelson/internal/runtime/image/gc"
)

// Operator is how whoever runs the agent reaches it while it runs. Each field is
// optional.
type Operator struct {
	Verbosity func(uint32) error             // changes how much is logged
	Hangup    <-chan os.Signal               // asks for the configuration to be read again
	Load      func() (*config.Config, error) // reads it
	// Contended gets a message when another process wants the lock file.
	Contended <-chan error
	Notify    func(state string) (bool, error) // tells the service manager; false if there is none
}

// A reload is a group of fields that can change while the agent runs, and how.
type reload struct {
	fields []string
	take   func(into, from *v1beta1.KubeletConfiguration)
	apply  func(*agent, *v1beta1.KubeletConfiguration)
}

// reloads are all there are. Everything else is read once, by parts that have
// promised something on the strength of it: a restart takes a second and leaves
// the pods alone.
var reloads = []reload{
	{
		[]string{"logging.verbosity"},
		func(into, from *v1beta1.KubeletConfiguration) { into.Logging.Verbosity = from.Logging.Verbosity },
		func(a *agent, k *v1beta1.KubeletConfiguration) {
			if a.links.Operator.Verbosity == nil {
				return
			}
			if err := a.links.Operator.Verbosity(uint32(k.Logging.Verbosity)); err != nil {
				a.log.Error("cannot change how much is logged", "err", err)
			}
		},
	},
	{
		[]string{"imageGCHighThresholdPercent", "imageGCLowThresholdPercent", "imageMinimumGCAge", "imageMaximumGCAge"},
		func(into, from *v1beta1.KubeletConfiguration) {
			into.ImageGCHighThresholdPercent, into.ImageGCLowThresholdPercent = from.ImageGCHighThresholdPercent, from.ImageGCLowThresholdPercent
			into.ImageMinimumGCAge, into.ImageMaximumGCAge = from.ImageMinimumGCAge, from.ImageMaximumGCAge
		},
		func(a *agent, k *v1beta1.KubeletConfiguration) {
			a.imageGC.Adjust(gc.Limits{High: int(*k.ImageGCHighThresholdPercent), Low: int(*k.ImageGCLowThresholdPercent),
				MinAge: k.ImageMinimumGCAge.Duration, MaxAge: k.ImageMaximumGCAge.Duration})
		},
	},
	{
		[]string{"containerLogMaxSize", "containerLogMaxFiles"},
		func(into, from *v1beta1.KubeletConfiguration) {
			into.ContainerLogMaxSize, into.ContainerLogMaxFiles = from.ContainerLogMaxSize, from.ContainerLogMaxFiles
		},
		func(a *agent, k *v1beta1.KubeletConfiguration) {
			// The size was checked when the configuration was read.
			if size, err := maxLogSize(k); err == nil {
				a.rotator.Adjust(size, int(*k.ContainerLogMaxFiles))
			}
		},
	},
}

// Level is slog's level for a verbosity: four is its debug level, two lies half
// way.
func Level(verbosity uint32) slog.Level { return slog.Level(-int(min(verbosity, 1<<20))) }

// sortChanges says which changes are taken up at once and which wait for a
// restart.
func sortChanges(changes []config.Change) (groups []reload, taken, waiting []config.Change) {
	for _, r := range reloads {
		due := false
		for _, c := range changes {
			if slices.Contains(r.fields, c.Field) {
				taken, due = append(taken, c), true
			}
		}
		if due {
			groups = append(groups, r)
		}
	}
	for _, c := range changes {
		if !slices.Contains(taken, c) {
			waiting = append(waiting, c)
		}
	}
	return groups, taken, waiting
}

// heed reads the configuration again whenever it is asked to, until ctx ends.
func (a *agent) heed(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.links.Operator.Hangup:
			a.tellManager(reloading())
			a.reread()
			a.tellManager(stateReady)
		}
	}
}

// stepAside ends the agent when another one wants its place.
func (a *agent) stepAside(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-a.links.Operator.Contended:
		return err
	}
}

// reread takes up what can change. A configuration that has anything wrong is not
// taken up at all.
func (a *agent) reread() {
	next, err := a.links.Operator.Load()
	if err != nil {
		a.log.Error("the configuration was read again and is not taken up", "err", err)
		return
	}
	old := a.inForce.Load()
	groups, taken, waiting := sortChanges(config.Changes(old, &next.Kubelet))
	now := old.DeepCopy()
	for _, r := range groups {
		r.take(now, &next.Kubelet)
		r.apply(a, now)
	}
	a.inForce.Store(now)
	for _, w := range next.Warnings {
		a.log.Warn(w) // what was odd at the start may be odder now
	}
	a.log.Info("the configuration was read again", "changed", len(taken), "waiting", len(waiting))
	for _, c := range taken {
		a.log.Info("setting is in force", "field", c.Field, "value", c.New, "before", c.Old, "origin", next.Origins.Of(c.Field))
	}
	for _, c := range waiting {
		a.log.Warn("setting needs a restart of the kubelet to take effect; pods run on meanwhile", "field", c.Field, "value", c.New, "inForce", c.Old, "origin", next.Origins.Of(c.Field))
	}
}

// setVerbosity changes how much is logged, for whoever asks the server to; the
// answer is in the words that scripts know.
func (a *agent) setVerbosity(text string) (string, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32)
	if err == nil && n < 0 {
		err = errors.New("must not be negative")
	}
	if err == nil {
		err = a.links.Operator.Verbosity(uint32(n))
	}
	if err != nil {
		return "", fmt.Errorf("failed to set klog.logging.verbosity to %q: %w", text, err)
	}
	a.log.Info("verbosity was changed", "verbosity", n)
	return fmt.Sprintf("successfully set klog.logging.verbosity to %d", n), nil
}
