// Command guest runs a program in a User-Mode Linux guest with a cgroup v2 tree of its own (package uml). It builds the
// agent and the test images before. It is used as
//
//	go build -o bin/guest ./tools/guest
//	go test -tags guest -exec $PWD/bin/guest ./test/guest
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"keelson/test/images"
	"keelson/test/parts"
	"keelson/test/rig"
	"keelson/tools/uml"
)

func main() {
	if os.Getpid() == 1 {
		uml.First()
	}
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: guest PROGRAM [ARGUMENT...]")
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	code, err := run(ctx, flag.Arg(0), flag.Args()[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		code = 1
	}
	os.Exit(code)
}

func run(ctx context.Context, program string, args []string) (int, error) {
	b, err := parts.New(os.Stderr)
	if err != nil {
		return 0, err
	}
	guest, err := b.Guest(ctx)
	if err != nil {
		return 0, err
	}
	checkout, err := parts.Checkout()
	if err != nil {
		return 0, err
	}
	here, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	if program, err = filepath.Abs(program); err != nil {
		return 0, err
	}
	dir, remove, err := uml.Folder()
	if err != nil {
		return 0, err
	}
	defer remove()
	kubelet, err := rig.OurKubelet(ctx, dir)
	if err != nil {
		return 0, err
	}
	own, err := images.Own(ctx, checkout, dir)
	if err != nil {
		return 0, err
	}
	cfg := uml.Config{
		Guest: guest, Output: os.Stdout, Dir: here, Memory: "3G", Disk: 8 << 30,
		Env: append(environment(), "KEELSON_KUBELET="+kubelet, images.OwnEnv+"="+own),
	}
	for _, name := range []string{"KEELSON_PARITY_DIR", "KEELSON_RIG_LOGS"} {
		if d := os.Getenv(name); d != "" {
			cfg.Share = append(cfg.Share, d)
		}
	}
	return uml.Run(ctx, cfg, dir, program, args...)
}

// environment returns the environment of the program, with the variables of this process that it needs.
func environment() []string {
	env := uml.Env()
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "KEELSON_") || name == "HOME" || name == "XDG_CACHE_HOME" {
			env = append(env, kv)
		}
	}
	return env
}
