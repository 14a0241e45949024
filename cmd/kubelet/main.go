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
)

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) int {
	cfg, err := config.Load(args)
	var answer *config.Answer
	if errors.As(err, &answer) {
		fmt.Print(answer.Text)
		return 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kubelet:", err)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	log := newLogger(os.Stderr, cfg)
	for _, w := range cfg.Warnings {
		log.Warn(w)
	}
	if err := app.Run(ctx, cfg, log); err != nil {
		log.Error("kubelet ends", "err", err)
		return 1
	}
	return 0
}
