package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	v1beta1 "k8s.io/kubelet/config/v1beta1"

	"keelson/internal/resources/cgroup"
)

// settleProcess gives the process the standing that the configuration asks for.
// Where that cannot be had, the agent runs without.
func settleProcess(k *v1beta1.KubeletConfiguration, proc string, log *slog.Logger) {
	if err := openFiles(uint64(k.MaxOpenFiles)); err != nil {
		log.Warn("cannot set how many files the agent may open", "maxOpenFiles", k.MaxOpenFiles, "err", err)
	}
	if !k.ProtectKernelDefaults {
		if err := tune(filepath.Join(proc, "sys")); err != nil {
			log.Warn("cannot set up the kernel for pods", "err", err)
		}
	}
	place(k, proc, settleCgroups, log)
}

// placeEvery is how often the place of processes is looked after: the machine starts
// others, and an administrator may have moved the agent.
const placeEvery = 5 * time.Minute

// place has the kernel spare the agent, and gives it and the node's own processes
// their cgroups.
func place(k *v1beta1.KubeletConfiguration, proc string, groups func(*v1beta1.KubeletConfiguration) error, log *slog.Logger) {
	if err := os.WriteFile(filepath.Join(proc, "self/oom_score_adj"), []byte(strconv.Itoa(int(*k.OOMScoreAdj))), 0); err != nil {
		log.Warn("cannot set how soon the kernel kills the agent for memory", "oomScoreAdj", *k.OOMScoreAdj, "err", err)
	}
	if err := groups(k); err != nil {
		log.Warn("cannot give the node's own processes their cgroups", "err", err)
	}
}

// keepPlace looks after the place of processes until ctx ends.
func keepPlace(k *v1beta1.KubeletConfiguration, proc string, groups func(*v1beta1.KubeletConfiguration) error, log *slog.Logger) func(context.Context) error {
	return func(ctx context.Context) error {
		tick := time.NewTicker(placeEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
				place(k, proc, groups, log)
			}
		}
	}
}

// settleCgroups has the agent, and what the machine runs beside pods, in the cgroups
// that the configuration names.
func settleCgroups(k *v1beta1.KubeletConfiguration) error {
	if k.KubeletCgroups == "" && k.SystemCgroups == "" {
		return nil
	}
	groups, err := cgroup.Detect()
	if err != nil {
		return err
	}
	if k.KubeletCgroups != "" {
		err = groups.Join(k.KubeletCgroups, os.Getpid())
	}
	if k.SystemCgroups != "" {
		err = errors.Join(err, groups.Gather(k.SystemCgroups))
	}
	return err
}

// openFiles sets how many files the process may open. To raise what it may at most
// is a privilege; without it, as many as it may.
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
