// Command parts builds the real programs that the tests need, unless they are built already, and prints where they are.
//
//	go run ./tools/parts [-list] [name or group ...]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"keelson/test/parts"
)

func main() {
	list := flag.Bool("list", false, "only say what there is, build nothing")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(),
			"usage: parts [-list] [name or group ...]\n\ngroups: runtime, cluster, peer, inputs, conformance; no name means all")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *list, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "parts:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, list bool, names []string) error {
	ps, err := parts.Named(names...)
	if err != nil {
		return err
	}
	b, err := parts.New(os.Stderr)
	if err != nil {
		return err
	}
	for _, p := range ps {
		s, err := b.State(p)
		if err != nil {
			return err
		}
		if !list {
			if _, err := b.Dir(ctx, p.Name); err != nil {
				return err
			}
			s.Built = true
		}
		fmt.Printf("%-24s %-9s %-7s %s\n", p.Name, s.Version, map[bool]string{
			true:  "ready",
			false: "missing",
		}[s.Built], s.Dir)
	}
	return nil
}
