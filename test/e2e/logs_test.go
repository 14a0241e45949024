//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson/test/images"
	"keelson/test/kit/parity"
	"keelson/test/rig"
)

// chatty is a static pod that always writes to its log, about 60 KiB a second.
const chatty = `apiVersion: v1
kind: Pod
metadata: {name: chatty, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: ` + images.Demo + `
    args: [log, "1000000", 2ms, "100"]
    livenessProbe: {periodSeconds: 1, exec: {command: [/demo, echo, alive]}}
`

// TestLogsAndMeasures follows a log over rotations on a real runtime, without a
// control plane, and checks the metrics and health checks of the node meanwhile.
func TestLogsAndMeasures(t *testing.T) {
	parity.ProvesPart(t, 4, "RT-44")
	binary, err := rig.OurKubelet(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := rig.Start(t,
		rig.Options{Kubelet: &rig.KubeletConfig{Binary: binary, Standalone: true,
			Edit: func(c *kubeletconfig.KubeletConfiguration) {
				quick(c)
				c.ContainerLogMaxSize = "100Ki"
				files := int32(3)
				c.ContainerLogMaxFiles = &files
				c.ContainerLogMonitorInterval = &metav1.Duration{Duration: 3 * time.Second}
			}}})
	k := r.Kubelet
	manifest := filepath.Join(k.Manifests, "chatty.yaml")
	if err := os.WriteFile(manifest, []byte(chatty), 0o600); err != nil {
		t.Fatal(err)
	}
	name := "chatty-" + k.Node
	until(t, "a log", func() (string, bool) {
		out, err := k.Get(t.Context(), "/containerLogs/default/"+name+"/main?limitBytes=1000")
		return out, err == nil && out != ""
	})
	follow(t, k, name)

	// not while it is rotated
	until(t, "the live file of the log, a plain one and a compressed one", func() (string, bool) {
		files, err := filepath.Glob(filepath.Join(k.PodLogs, "default_"+name+"_*", "main", "0.log*"))
		plain, packed := 0, 0
		for _, f := range files {
			if strings.HasSuffix(f, ".gz") {
				packed++
			} else {
				plain++
			}
		}
		return strings.Join(files, " "), err == nil && plain == 2 && packed == 1
	})
	for path, want := range map[string][]string{
		"/metrics": {`kubelet_running_pods 1`, `kubelet_running_containers{container_state="running"} 1`,
			`kubelet_desired_pods{static="true"} 1`,
			`kubelet_active_pods{static="true"} 1`,
			`kubelet_working_pods{config="desired",lifecycle="sync",static="true"} 1`,
			`kubelet_pod_start_duration_seconds_count 1`,
			`kubelet_evented_pleg_connection_success_count 1`, `kubelet_node_name{node="` + k.Node + `"} 1`,
			`kubelet_container_log_filesystem_used_bytes{container="main",`},
		"/metrics/probes": {`prober_probe_total{container="main",namespace="default",pod="` + name + `",pod_uid="`,
			`prober_probe_duration_seconds_count{`},
		"/healthz?verbose":  {"[+]ping ok", "[+]log ok", "[+]syncloop ok", "healthz check passed"},
		"/healthz/syncloop": {"ok"},
	} {
		until(t, "the figures of "+path, func() (string, bool) {
			out, err := k.Get(t.Context(), path)
			for _, text := range want {
				if err == nil && !strings.Contains(out, text) {
					err = fmt.Errorf("%s does not tell %q:\n%s", path, text, out)
				}
			}
			return fmt.Sprint(err), err == nil
		})
	}
	checkpoint(t, k, name)
	if err := os.Remove(manifest); err != nil {
		t.Fatal(err)
	}
	until(t, "the logs to be gone", func() (string, bool) {
		left, err := filepath.Glob(filepath.Join(k.PodLogs, "*"))
		return strings.Join(left, " "), err == nil && len(left) == 0
	})
}

// follow reads a log that counts its lines until it was rotated four times.
func follow(t *testing.T, k *rig.Kubelet, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		k.URL+"/containerLogs/default/"+name+"/main?follow=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := k.HTTP.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	stamps, before := map[string]bool{}, 0
	for read := 0; len(stamps) < 4; read++ {
		if !lines.Scan() {
			t.Fatalf("the log ended after %d lines and %d rotations: %v", read, len(stamps), lines.Err())
		}
		var this int
		if _, err := fmt.Sscanf(lines.Text(), "line %d ", &this); err != nil {
			t.Fatalf("line %q: %v", lines.Text(), err)
		}
		if before != 0 && this != before+1 {
			t.Fatalf("line %d follows %d", this, before)
		}
		before = this
		if read%500 == 0 {
			rotated, err := filepath.Glob(filepath.Join(k.PodLogs, "default_"+name+"_*", "main", "0.log.*"))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range rotated {
				stamps[strings.TrimSuffix(f, ".gz")] = true
			}
		}
	}
}

// checkpoint requests a checkpoint. Without criu the runtime returns an error, and nothing
// is left of the attempt.
func checkpoint(t *testing.T, k *rig.Kubelet, name string) {
	t.Helper()
	resp, err := k.HTTP.Post(k.URL+"/checkpoint/default/"+name+"/main?timeout=120", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(k.Root, "checkpoints", "*"))
	if err != nil {
		t.Fatal(err)
	}
	switch resp.StatusCode {
	case http.StatusOK:
		if len(left) != 1 || string(body) != `{"items":["`+left[0]+`"]}`+"\n" {
			t.Errorf("checkpoint: %s, and the files %v", body, left)
		}
	case http.StatusInternalServerError:
		if !strings.Contains(string(body), "checkpointing of default/"+name+"/main failed") || len(left) > 0 {
			t.Errorf("checkpoint: %s, and the files %v", body, left)
		}
	default:
		t.Errorf("checkpoint: %s: %s", resp.Status, body)
	}
	t.Logf("checkpoint: %s: %s", resp.Status, body)
}
