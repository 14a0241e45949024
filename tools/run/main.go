// Command run shows pods on this machine without a control plane: it starts a containerd and the project's kubelet in a
// private folder, gives the kubelet the manifests of a folder, prints what happens to the pods, and removes everything
// at the end. `make run` and `make clean-run` call it.
//
//	run [flags] up|clean
//
// The kubelet reads a copy of the manifests (mirror.go): when the copies are removed, the pods are terminated in order,
// and the files of the user remain. What is shown comes from the kubelet's own server (podstate.go, changes.go) and
// from its log (log.go). Everything outside the private folder is made by test/rig, which records it before it makes
// it, so clean works after any crash.
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
	"syscall"
	"time"

	"keelson/test/parts"
	"keelson/test/rig"
)

// purpose marks the rigs of this command.
const purpose = "run"

func main() {
	var o options
	began := flag.Int64("began", time.Now().Unix(), "when the work began, in seconds of Unix time")
	flag.StringVar(&o.examples, "examples", "examples", "folder of the manifests")
	flag.StringVar(&o.kubelet, "kubelet", "", "kubelet binary (default: the one beside this program)")
	flag.StringVar(&o.logs, "logs", filepath.Join(os.TempDir(), "keelson-run-logs"),
		"folder that is given the logs of a run that failed; clean removes it")
	flag.StringVar(&o.runtime,
		"runtime", "any", `containerd and runc: "path", "debian", "built", or "any" for PATH's or else Debian's`)
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: run [flags] up|clean")
		flag.PrintDefaults()
	}
	flag.Parse()
	o.began = time.Unix(*began, 0)

	// Signals that end the command. A second one cuts the termination short.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		signal.Notify(signals, syscall.SIGHUP)
	}
	var err error
	switch flag.Arg(0) {
	case "up", "":
		err = up(o, signals)
	case "clean":
		err = clean(o)
	default:
		flag.Usage()
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "\nrun %s: %v\n", flag.Arg(0), err)
		os.Exit(1)
	}
}

// options are the command's flags.
type options struct {
	examples, kubelet, runtime, logs string
	began                            time.Time
}

// up runs the pods until a signal arrives, and leaves nothing.
func up(o options, signals <-chan os.Signal) error {
	if o.kubelet == "" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find kubelet: %w", err)
		}
		o.kubelet = filepath.Join(filepath.Dir(self), "kubelet")
	}
	examples, err := filepath.Abs(o.examples)
	if err != nil {
		return err
	}
	o.examples = examples
	t := &reporter{out: os.Stdout, began: o.began}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	go func() {
		<-signals
		cancel(errRequested)
	}()

	b, err := parts.New(t)
	if err != nil {
		return err
	}
	r, err := rig.Open(ctx, rig.Config{
		Purpose: purpose,
		Parts:   b,
		Log:     slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return fmt.Errorf("make a private folder: %w", err)
	}
	s := &show{options: o, reporter: t, rig: r, again: signals}
	err = s.run(ctx)
	if errors.Is(context.Cause(ctx), errRequested) {
		err = nil // the failure is a result of the cancellation
	}
	if err != nil {
		err = keepLogs(r, o.logs, err)
	}
	return errors.Join(err, removeRig(r, t))
}

// keepLogs copies the logs of a failed run to a folder that outlives it, in place of
// those of an earlier one, and names the folder in the error.
func keepLogs(r *rig.Rig, folder string, failure error) error {
	err := os.RemoveAll(folder)
	if err == nil {
		err = os.CopyFS(folder, os.DirFS(r.Logs))
	}
	if err != nil {
		return errors.Join(failure, fmt.Errorf("keep logs: %w", err))
	}
	return fmt.Errorf("%w\n  all logs: %s, until `make clean-run`", failure, folder)
}

// errRequested is the cause of a cancellation by a signal.
var errRequested = errors.New("termination requested")

// removeRig removes the rig. Further signals do not interrupt it, so that nothing is left.
func removeRig(r *rig.Rig, t *reporter) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if err := r.Close(ctx); err != nil {
		return fmt.Errorf("%w\n  `make clean-run` tries again", err)
	}
	t.step("removed %s and all that belonged to it", r.Dir)
	return nil
}

// clean removes what crashed runs left.
func clean(o options) error {
	n, err := rig.Remove(context.Background(),
		slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})), purpose)
	if err = errors.Join(err, os.RemoveAll(o.logs)); err != nil {
		return err
	}
	if n == 0 {
		fmt.Println("nothing was left")
		return nil
	}
	fmt.Printf("removed what %d crashed run(s) left\n", n)
	return nil
}
