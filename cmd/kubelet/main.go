package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"keelson/internal/app"
	"keelson/internal/config"
	"keelson/internal/host/systemd"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	if len(args) > 0 && args[0] == "explain" {
		return runExplain(args[1:], os.Stdout, os.Stderr)
	}
	cfg, err := config.Load(args)
	var answer *config.Answer
	switch {
	case errors.As(err, &answer):
		fmt.Print(answer.Text)
		return 0
	case cfg != nil && cfg.Flags.ShowConfig && !cfg.Flags.Validate:
		// Shown even if the configuration is invalid.
		fmt.Print(cfg.Show())
		return report(err)
	case cfg != nil && cfg.Flags.Validate:
		return check(cfg, err, os.Stdout, os.Stderr)
	case err != nil:
		return report(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// A second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	hangup := make(chan os.Signal, 1) // one pending signal is enough
	signal.Notify(hangup, syscall.SIGHUP)
	log, err := newProcessLog(os.Stdout, os.Stderr, cfg)
	if err != nil {
		return report(err)
	}
	defer log.close()
	for _, w := range cfg.Warnings {
		log.Warn(w)
	}
	if uid := os.Geteuid(); uid != 0 {
		log.Error("kubelet is not running as root", "uid", uid)
	}
	logConfiguration(log.Logger, cfg)
	op := app.Operator{
		Verbosity: log.setVerbosity,
		Hangup:    hangup,
		Load:      func() (*config.Config, error) { return config.Load(args) },
		Notify:    systemd.Notifier(),
	}
	if err := app.Run(ctx, cfg, log.Logger, op); err != nil {
		log.Error("failed to run kubelet", "err", err)
		return 1
	}
	return 0
}

func report(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "kubelet:", err)
	return 1
}
