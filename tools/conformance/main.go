// Command conformance runs upstream's conformance suite against a kubelet, on a one-node cluster of its own and with
// images that are built here. By default it runs the specs labelled NodeConformance, without serial, disruptive and
// slow ones.
//
//	go run ./tools/conformance [-focus RE] [-kubelet BIN]
//
// It prints the names of failing specs and 'N passed, N failed, N skipped',
// and keeps the reports.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"keelson/test/images/suite"
	"keelson/test/parts"
	"keelson/test/rig"
)

// settings are the command line.
type settings struct {
	kubelet, focus, skip, runtime, out, known string

	procs   int
	timeout time.Duration
}

func main() {
	var s settings
	flag.StringVar(&s.kubelet,
		"kubelet", "", `kubelet binary; "upstream" for the pinned one; the project's, compiled now, if empty`)
	flag.StringVar(&s.focus, "focus", `\[NodeConformance\]`, "specs to run, a regular expression on their names")
	flag.StringVar(&s.skip, "skip", `\[Serial\]|\[Disruptive\]|\[Slow\]|Windows`, "specs to leave out")
	flag.StringVar(&s.runtime, "runtime", "built", "containerd and runc: built, debian or path")
	flag.StringVar(&s.out, "out", "", "folder for reports and logs (in the cache, if empty)")
	flag.StringVar(&s.known, "known", "", "file of spec names, one a line: also say which of them did not pass")
	flag.IntVar(&s.procs, "procs", 2, "specs at a time")
	flag.DurationVar(&s.timeout, "timeout", 90*time.Minute, "end the suite after this long")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	failed, err := run(ctx, s)
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(2)
	}
	if failed {
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings) (failed bool, err error) {
	b, err := parts.New(os.Stderr)
	if err != nil {
		return false, err
	}
	tools := map[string]string{}
	for _, p := range []string{"ginkgo", "e2e.test", "kubectl", "agnhost", "coredns"} {
		if tools[p], err = b.Path(ctx, p); err != nil {
			return false, err
		}
	}
	if s.out == "" {
		cache, err := parts.CacheDir()
		if err != nil {
			return false, err
		}
		s.out = filepath.Join(cache, "conformance", time.Now().Format("20060102-150405"))
	}
	if s.out, err = filepath.Abs(s.out); err != nil {
		return false, err
	}
	if err := os.MkdirAll(s.out, 0o755); err != nil {
		return false, err
	}

	r, err := rig.Open(ctx, rig.Config{
		Purpose: "conformance",
		Parts:   b,
		Log:     slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return false, err
	}
	defer func() {
		// ctx may have ended.
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		if e := os.CopyFS(filepath.Join(s.out, "logs"), os.DirFS(r.Logs)); e != nil {
			err = errors.Join(err, e)
		}
		err = errors.Join(err, r.Close(ctx))
	}()
	if err := prepare(ctx, b, r, s); err != nil {
		return false, err
	}
	fmt.Fprintf(os.Stderr, "running the suite, %d at a time; its output is in %s\n", s.procs,
		filepath.Join(s.out, "suite.log"))
	start := time.Now()
	if err := ginkgo(ctx, r, tools, s); err != nil {
		return false, err
	}
	res, err := readReport(filepath.Join(s.out, "report.json"))
	if err != nil {
		return false, fmt.Errorf("%w (see %s)", err, filepath.Join(s.out, "suite.log"))
	}
	if err := res.print(os.Stdout, s.known); err != nil {
		return false, err
	}
	fmt.Printf("in %s; %s holds report.json, junit.xml and logs\n", time.Since(start).Round(time.Second), s.out)
	return len(res.failed)+len(res.suite) > 0, nil
}

// prepare starts the cluster with the suite's images.
func prepare(ctx context.Context, b *parts.Builder, r *rig.Rig, s settings) error {
	fmt.Fprintln(os.Stderr, "making the suite's images")
	archives, err := suite.Build(ctx, b, r.Dir)
	if err != nil {
		return err
	}
	binary := s.kubelet
	switch binary {
	case "":
		binary, err = rig.OurKubelet(ctx, filepath.Join(r.Dir, "bin"))
	case "upstream":
		binary, err = b.Path(ctx, "kubelet")
	default:
		binary, err = filepath.Abs(binary)
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "starting a cluster")
	if _, err := r.StartRuntime(ctx, rig.RuntimeConfig{Source: s.runtime, Images: archives}); err != nil {
		return err
	}
	for _, f := range archives {
		if err := os.Remove(f); err != nil {
			return err
		}
	}
	if _, err := r.StartCluster(ctx, rig.ClusterConfig{}); err != nil {
		return err
	}
	_, err = r.StartKubelet(ctx, rig.KubeletConfig{Binary: binary})
	return err
}

// ginkgo runs the suite. Failing specs are not an error here: they are in the report.
func ginkgo(ctx context.Context, r *rig.Rig, tools map[string]string, s settings) error {
	log, err := os.Create(filepath.Join(s.out, "suite.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	args := []string{
		"--procs=" + strconv.Itoa(s.procs), "--timeout=" + s.timeout.String(), "--no-color", "--succinct",
		"--poll-progress-after=0s", "--keep-going", "--focus=" + s.focus,
		"--output-dir=" + s.out, "--json-report=report.json", "--junit-report=junit.xml",
	}
	if s.skip != "" {
		args = append(args, "--skip="+s.skip)
	}
	args = append(args, tools["e2e.test"], "--",
		"--kubeconfig="+r.Cluster.Kubeconfig, "--provider=local", "--node-os-distro=custom",
		"--master-os-distro=custom",
		"--kubectl-path="+tools["kubectl"], "--kubelet-root-dir="+r.Kubelet.Root,
		"--container-runtime-endpoint="+r.Runtime.Endpoint(),
		"--dump-logs-on-failure=false", "--disable-log-dump=true", "--allowed-not-ready-nodes=0", "--num-nodes=1")
	cmd := exec.CommandContext(ctx, tools["ginkgo"], args...)
	cmd.Dir = s.out
	cmd.Stdout, cmd.Stderr = log, log
	// Its workers are processes of their own: a signal has to reach them.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && ctx.Err() == nil {
		return nil
	}
	return err
}
