// Command cluster keeps a one-node cluster running: etcd, control plane,
// containerd and a kubelet, all in one folder.
//
//	go run ./tools/cluster [flags] up|down|status
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"keelson/test/parts"
	"keelson/test/rig"
)

// purpose marks the rigs of this command.
const purpose = "cluster"

// Values that a running cluster exports to later commands.
const (
	exportKubeconfig = "kubeconfig"
	exportKubectl    = "kubectl"
	exportNode       = "node"
)

func main() {
	kubelet := flag.String("kubelet", "",
		`kubelet binary; "upstream" for the pinned one; the project's, compiled now, if empty`)
	source := flag.String("runtime", "built", "containerd and runc: built, debian or path")
	foreground := flag.Bool("foreground", false, "stay, and take the cluster down on Ctrl-C")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: cluster [flags] up|down|status")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	var err error
	switch verb := flag.Arg(0); verb {
	case "up", "":
		err = up(ctx, log, *kubelet, *source, *foreground)
	case "down":
		var n int
		if n, err = rig.Remove(ctx, log, purpose); err == nil {
			fmt.Printf("%d clusters removed\n", n)
		}
	case "status":
		for _, f := range rig.Find(purpose) {
			report(f.Dir, f.Exports)
		}
	default:
		flag.Usage()
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func up(ctx context.Context, log *slog.Logger, kubelet, source string, foreground bool) (err error) {
	for _, f := range rig.Find(purpose) {
		report(f.Dir, f.Exports)
		return fmt.Errorf("start cluster: one is there already (make cluster-down removes it)")
	}
	b, err := parts.New(os.Stderr)
	if err != nil {
		return err
	}
	r, err := rig.Open(ctx, rig.Config{Purpose: purpose, Detached: !foreground, Parts: b, Log: log})
	if err != nil {
		return err
	}
	defer func() {
		if err == nil && !foreground {
			return
		}
		// ctx may have ended.
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		if e := r.Close(ctx); err == nil {
			err = e
		}
	}()
	start := time.Now()
	step := func(what string) {
		fmt.Fprintf(os.Stderr, "%5.1f s  %s\n", time.Since(start).Seconds(), what)
	}
	kubectl, err := b.Dir(ctx, "kubectl")
	if err != nil {
		return err
	}
	binary, err := choose(ctx, b, r, kubelet)
	if err != nil {
		return err
	}
	step("starting containerd")
	if _, err := r.StartRuntime(ctx, rig.RuntimeConfig{Source: source}); err != nil {
		return err
	}
	step("starting etcd and the control plane")
	if _, err := r.StartCluster(ctx, rig.ClusterConfig{}); err != nil {
		return err
	}
	step("starting the kubelet")
	k, err := r.StartKubelet(ctx, rig.KubeletConfig{Binary: binary})
	if err != nil {
		return err
	}
	step("node Ready")
	exports := map[string]string{exportKubeconfig: r.Cluster.Kubeconfig, exportKubectl: kubectl, exportNode: k.Node}
	for name, value := range exports {
		if err := r.Export(name, value); err != nil {
			return err
		}
	}
	report(r.Dir, exports)
	if foreground {
		select {
		case <-ctx.Done():
		case <-k.Done():
			return fmt.Errorf("run cluster: the kubelet ended by itself, see %s", k.LogFile)
		}
	}
	return nil
}

// choose finds the kubelet binary.
func choose(ctx context.Context, b *parts.Builder, r *rig.Rig, kubelet string) (string, error) {
	switch kubelet {
	case "":
		bin := filepath.Join(r.Dir, "bin") // the kubelet keeps its own files in r.Dir
		if err := os.MkdirAll(bin, 0o755); err != nil {
			return "", err
		}
		return rig.OurKubelet(ctx, bin)
	case "upstream":
		return b.Path(ctx, "kubelet")
	}
	return filepath.Abs(kubelet)
}

func report(dir string, exports map[string]string) {
	fmt.Printf("\nnode %s, files in %s, logs in %s\n\n  export KUBECONFIG=%s\n", exports[exportNode], dir,
		filepath.Join(dir, "logs"), exports[exportKubeconfig])
	if d := exports[exportKubectl]; !strings.Contains(":"+os.Getenv("PATH")+":", ":"+d+":") {
		fmt.Printf("  export PATH=%s:$PATH\n", d)
	}
	fmt.Printf("\nmake cluster-down removes it\n")
}
