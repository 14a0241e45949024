// Command bench measures our kubelet, upstream's kubelet, and runtime calls that are made directly. It prints a table
// and a line for each figure.
//
//	go run ./tools/bench -kubelet bin/kubelet [-only F1,F2] [-runs 20] [-pods 110]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"keelson/test/bench"
	"keelson/test/parts"
)

func main() {
	kubelet := flag.String("kubelet", "bin/kubelet", "our kubelet")
	only := flag.String("only", "",
		"figures or scenes, with commas between, such as F1,F2,crowd; all of them: all; those that take minutes only when named (default: all quick ones)")
	runs := flag.Int("runs", 20, "samples of what is measured one at a time")
	pods := flag.Int("pods", 110, "pods of a full node")
	upstream := flag.Bool("upstream", true, "measure upstream's kubelet beside ours")
	profile := flag.String("profile", "", "folder for CPU profiles and call logs of our kubelet")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubelet, *only, *profile, bench.Config{
		Runs:     *runs,
		Pods:     *pods,
		Upstream: *upstream,
	}); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubelet, only, profile string, cfg bench.Config) (err error) {
	cfg.Out = os.Stderr
	cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	if cfg.Parts, err = parts.New(os.Stderr); err != nil {
		return err
	}
	if only != "" {
		cfg.Only = strings.Split(only, ",")
	}
	if profile != "" {
		if err := os.MkdirAll(profile, 0o755); err != nil {
			return err
		}
		cfg.Profile = profile
	}
	// A copy, because the original may be rebuilt during the run.
	dir, err := os.MkdirTemp("", "keelson-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	data, err := os.ReadFile(kubelet)
	if err != nil {
		return err
	}
	cfg.Ours = filepath.Join(dir, "kubelet")
	if err := os.WriteFile(cfg.Ours, data, 0o755); err != nil {
		return err
	}
	report, err := bench.Run(ctx, cfg)
	if report != nil {
		err = errors.Join(err, report.Print(os.Stdout))
		if err == nil && !report.Complete() {
			err = errors.New("some scenes could not be measured")
		}
	}
	return err
}
