package differ

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"keelson/test/parts"
	"keelson/test/rig"
)

// Config is the configuration of a stage.
type Config struct {
	Ours  string // our agent's binary
	Peer  string // the other agent's; upstream's if empty
	Parts *parts.Builder
	Real  bool      // containerd instead of the fake runtime
	Out   io.Writer // progress
	Keep  string    // directory for files about lives that differ; none are written if empty
	Log   *slog.Logger
}

// Stage is two nodes of one cluster.
type Stage struct {
	cfg    Config
	sides  [2]*side // ours, theirs
	client kubernetes.Interface
	server *server
	start  time.Time
	lives  *cast
	clock  *clock
	named  int // lives that were run again

	patience time.Duration // how long a life may take to come to rest
}

// Open starts the cluster and both agents.
func Open(ctx context.Context, cfg Config) (s *Stage, err error) {
	s = &Stage{
		cfg:      cfg,
		start:    time.Now(),
		clock:    newClock(),
		lives:    &cast{of: map[string]*Life{}},
		patience: restBound,
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if cfg.Peer == "" {
		if cfg.Peer, err = cfg.Parts.Path(ctx, "kubelet"); err != nil {
			return s, err
		}
	}
	for i, c := range []struct{ node, binary string }{{"differ-our", cfg.Ours}, {"differ-ups", cfg.Peer}} {
		r, err := rig.Open(ctx, rig.Config{Purpose: "differ", Parts: cfg.Parts, Log: cfg.Log})
		if err != nil {
			return s, err
		}
		s.sides[i] = newSide(i, c.node, c.binary, r, s)
	}
	if err := s.runtimes(ctx); err != nil {
		return s, err
	}
	cluster, err := s.sides[0].rig.StartCluster(ctx,
		rig.ClusterConfig{ControllerManagerFlags: []string{"--node-monitor-grace-period=30s",
			"--node-monitor-period=1s"}})
	if err != nil {
		return s, err
	}
	s.client = cluster.Client
	s.sides[1].rig.Join(cluster)
	if err := s.namespaces(ctx); err != nil {
		return s, err
	}
	if !cfg.Real {
		if s.server, err = serve(ctx, s.sides); err != nil {
			return s, err
		}
		for _, side := range s.sides {
			side.bind = s.server.bind
		}
	}
	g, gctx := errgroup.WithContext(ctx)
	for _, side := range s.sides {
		g.Go(func() error { return side.open(gctx, ctx, s.client) })
	}
	if err := g.Wait(); err != nil {
		return s, err
	}
	s.say("both agents are up")
	return s, nil
}

// runtimes gives each side a runtime.
func (s *Stage) runtimes(ctx context.Context) error {
	if !s.cfg.Real {
		for _, side := range s.sides {
			side.useFake()
		}
		return nil
	}
	s.patience = realRestBound
	archive, err := shellImages(ctx, s.cfg.Parts, s.sides[0].rig.Dir)
	if err != nil {
		return err
	}
	for _, side := range s.sides {
		if err := side.useContainerd(ctx, archive); err != nil {
			return err
		}
	}
	return nil
}

// namespaces creates the sides' namespaces and waits for their default service accounts.
func (s *Stage) namespaces(ctx context.Context) error {
	for _, side := range s.sides {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: side.ns}}
		if _, err := s.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make namespace %s: %w", side.ns, err)
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, errors.New("not within 2 min"))
	defer cancel()
	for _, side := range s.sides {
		for {
			_, err := s.client.CoreV1().ServiceAccounts(side.ns).Get(ctx, "default", metav1.GetOptions{})
			_, err2 := s.client.CoreV1().ConfigMaps(side.ns).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
			if err == nil && err2 == nil {
				break
			}
			if err := pause(ctx, 50*time.Millisecond); err != nil {
				return fmt.Errorf("wait for the service account of namespace %s: %w", side.ns, err)
			}
		}
	}
	return nil
}

// Close stops the agents and removes both rigs.
func (s *Stage) Close() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	var errs []error
	defer func() { // agents may send probes until they end
		if s.server != nil {
			err = errors.Join(err, s.server.close())
		}
	}()
	for _, i := range []int{1, 0} { // the one with the cluster last
		if s.sides[i] != nil {
			errs = append(errs, s.sides[i].close(ctx))
		}
	}
	return errors.Join(errs...)
}

// say prints a line of progress.
func (s *Stage) say(format string, args ...any) {
	fmt.Fprintf(s.cfg.Out, "%5d s  %s\n", int(time.Since(s.start).Seconds()), fmt.Sprintf(format, args...))
}

// pause waits for d, or until the context ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
