package setup

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// placeEvery is how often the OOM score and the cgroups of processes are written again: the machine starts other
// processes, and an administrator may have moved the agent.
const placeEvery = 5 * time.Minute

// ProcessConfig holds what a Process is built from. Every field is required.
type ProcessConfig struct {
	Proc         string // where the proc file system is mounted
	MaxOpenFiles uint64 // 0: the limit of open files is left as it is
	OOMScoreAdj  int
	// ProtectKernelDefaults leaves the sysctls as they are.
	ProtectKernelDefaults bool
	// Place moves the agent, and the processes of the system, to their cgroups.
	Place func() error
	Log   *slog.Logger
}

// Process sets the limits, the OOM score and the cgroup of the agent's process, and the sysctls. A setting that fails
// is logged, and the agent runs without it.
type Process struct{ cfg ProcessConfig }

// NewProcess makes a Process. It changes nothing.
func NewProcess(cfg ProcessConfig) *Process { return &Process{cfg} }

// Apply makes all settings once.
func (p *Process) Apply() {
	if err := openFiles(p.cfg.MaxOpenFiles); err != nil {
		p.cfg.Log.Warn("failed to set limit of open files", "maxOpenFiles", p.cfg.MaxOpenFiles, "err", err)
	}
	if !p.cfg.ProtectKernelDefaults {
		if err := tune(filepath.Join(p.cfg.Proc, "sys")); err != nil {
			p.cfg.Log.Warn("failed to set sysctls", "err", err)
		}
	}
	p.place()
}

// Run writes the OOM score and the cgroups again every placeEvery, until ctx ends.
func (p *Process) Run(ctx context.Context) error {
	tick := time.NewTicker(placeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			p.place()
		}
	}
}

func (p *Process) place() {
	file := filepath.Join(p.cfg.Proc, "self/oom_score_adj")
	if err := os.WriteFile(file, []byte(strconv.Itoa(p.cfg.OOMScoreAdj)), 0); err != nil {
		p.cfg.Log.Warn("failed to set OOM score", "oomScoreAdj", p.cfg.OOMScoreAdj, "err", err)
	}
	if err := p.cfg.Place(); err != nil {
		p.cfg.Log.Warn("failed to move processes of the node to their cgroups", "err", err)
	}
}

// openFiles sets the limit of open files. To raise the hard limit is a privilege; without it, the soft limit is
// raised as far as the hard limit allows.
func openFiles(n uint64) error {
	if n == 0 {
		return nil
	}
	err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: n})
	if err == nil {
		return nil
	}
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &now); err != nil {
		return fmt.Errorf("read limit of open files: %w", err)
	}
	now.Cur = min(n, now.Max)
	if again := unix.Setrlimit(unix.RLIMIT_NOFILE, &now); again != nil {
		return fmt.Errorf("set limit of open files: %w", again)
	}
	return fmt.Errorf("set limit of open files, %d is what remains: %w", now.Cur, err)
}
