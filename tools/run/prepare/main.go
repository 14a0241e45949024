// Command prepare makes what `make run` needs, and prints its progress: it compiles the kubelet and the command that
// runs it, and meanwhile unpacks a container runtime from Debian's packages if PATH has none.
//
// It imports little, so that it is compiled within seconds itself.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"keelson/test/parts"
)

// programs are the packages that are compiled, each into a file with the name of its folder.
var programs = []string{"./cmd/kubelet", "./tools/run"}

func main() {
	began := flag.Int64("began", time.Now().Unix(), "when the work began, in seconds of Unix time")
	golang := flag.String("go", "go", "the go command")
	tags := flag.String("tags", "", "build tags")
	ldflags := flag.String("ldflags", "", "flags for the linker")
	out := flag.String("o", "bin", "folder of the programs")
	runtime := flag.Bool("runtime", true, "provide a container runtime")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	p := newProgress(os.Stderr, time.Unix(*began, 0))
	c := compiler{golang: *golang, tags: *tags, ldflags: *ldflags, out: *out, progress: p}
	jobs := []func(context.Context) error{c.compile}
	if *runtime {
		if os.Geteuid() != 0 {
			fmt.Fprintln(os.Stderr, "make run: containers, mounts and network bridges need root: run it as root")
			os.Exit(1)
		}
		jobs = append(jobs, func(ctx context.Context) error { return unpack(ctx, p) })
	}
	err := together(ctx, jobs)
	p.clear()
	if ctx.Err() != nil {
		os.Exit(130) // asked to stop; nothing is left but the caches
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "make run:", err)
		os.Exit(1)
	}
}

// unpack provides a container runtime.
func unpack(ctx context.Context, p *progress) error {
	b, err := parts.New(p)
	if err != nil {
		return fmt.Errorf("find a container runtime: %w", err)
	}
	r, err := b.AnyRuntime(ctx)
	if err != nil {
		return fmt.Errorf(
			"find a container runtime: %w\n  install containerd, runc and the CNI plugins, or see that apt-get reaches Debian's packages", err)
	}
	p.line("containerd %s %s", r.Version, map[string]string{
		"path":   "is on PATH",
		"debian": "comes from Debian's packages, not installed",
	}[r.Source])
	return nil
}

// together runs jobs concurrently. The first failure ends the others.
func together(ctx context.Context, jobs []func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(jobs))
	var wg sync.WaitGroup
	for i, job := range jobs {
		wg.Go(func() {
			if err := job(ctx); err != nil && ctx.Err() == nil {
				errs[i] = err
				cancel()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
