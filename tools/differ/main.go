// Command differ runs the same generated histories of pods on our agent and on upstream's, and prints the differences.
//
//	go run ./tools/differ -kubelet bin/kubelet [-seed 1] [-n 100] [-life 12]
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
	"strconv"
	"strings"
	"syscall"
	"time"

	"keelson/test/differ"
	"keelson/test/parts"
)

func main() {
	var o options
	flag.StringVar(&o.kubelet, "kubelet", "bin/kubelet", "our agent")
	flag.StringVar(&o.peer, "peer", "", "the other agent (default: upstream's)")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the first history; each next history has the next one")
	flag.IntVar(&o.pods, "n", 100, "number of pods; 100 of them run at a time, 20 with -real")
	flag.BoolVar(&o.real, "real", false, "use containerd instead of the fake runtime, with pods that it can run")
	flag.Func("life", "run only pods with these numbers of the first history: 3,17", o.add)
	flag.DurationVar(&o.within, "within", 0, "start no further history after this time")
	flag.BoolVar(&o.shrink, "shrink", true, "shrink the differences that are found")
	flag.BoolVar(&o.plain, "plain", false, "generate pods with few features")
	flag.StringVar(&o.keep,
		"keep", "", "write lives that differ, with all that both sides did, to files in this directory")
	flag.BoolVar(&o.again, "again", true, "repeat lives that differed, to tell steady differences from random ones")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "differ:", err)
		os.Exit(1)
	}
}

type options struct {
	kubelet, peer string
	keep          string
	again         bool
	seed          uint64
	pods          int
	lives         []int
	within        time.Duration
	shrink, plain bool
	real          bool
}

// add reads numbers of lives.
func (o *options) add(list string) error {
	for n := range strings.SplitSeq(list, ",") {
		i, err := strconv.Atoi(n)
		if err != nil || i < 0 {
			return fmt.Errorf("%q is not the number of a life", n)
		}
		o.lives = append(o.lives, i)
	}
	return nil
}

func run(ctx context.Context, o options) (err error) {
	cfg := differ.Config{
		Peer: o.peer,
		Real: o.real,
		Out:  os.Stderr,
		Keep: o.keep,
		Log:  slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	if cfg.Parts, err = parts.New(os.Stderr); err != nil {
		return err
	}
	if o.keep != "" {
		if err := os.MkdirAll(o.keep, 0o755); err != nil {
			return err
		}
	}
	// A copy, because the original may be rebuilt during the run.
	dir, err := os.MkdirTemp("", "keelson-differ-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	data, err := os.ReadFile(o.kubelet)
	if err != nil {
		return err
	}
	cfg.Ours = filepath.Join(dir, "kubelet")
	if err := os.WriteFile(cfg.Ours, data, 0o755); err != nil {
		return err
	}
	stage, err := differ.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stage.Close()) }()
	sum, err := stage.Run(ctx, differ.Plan{
		Seed:   o.seed,
		Pods:   o.pods,
		Lives:  o.lives,
		Within: o.within,
		Again:  o.again,
		Shrink: o.shrink,
		Plain:  o.plain,
	})
	if err != nil {
		return err
	}
	if err := sum.Print(os.Stdout); err != nil {
		return err
	}
	if len(sum.Left[0]) > 0 {
		return fmt.Errorf("%d leftovers of removed pods", len(sum.Left[0]))
	}
	if len(sum.Groups) > 0 {
		return fmt.Errorf("%d differences", len(sum.Groups))
	}
	return nil
}
