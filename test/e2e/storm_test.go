//go:build e2e

package e2e

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"keelson/test/images"
	"keelson/test/rig"
)

// storm is a static pod that prints as fast as it can.
const storm = `apiVersion: v1
kind: Pod
metadata: {name: storm, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: ` + images.Demo + `, args: [log, "1000000000", 0s, "2000"]}
`

// bystander is a static pod that is probed every second.
const bystander = `apiVersion: v1
kind: Pod
metadata: {name: bystander, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: ` + images.Demo + `
    args: [serve]
    readinessProbe: {periodSeconds: 1, timeoutSeconds: 60, httpGet: {path: /healthz, port: 8080}}
    livenessProbe: {periodSeconds: 1, timeoutSeconds: 60, failureThreshold: 1, exec: {command: [/demo, echo, alive]}}
`

// TestLogStorm runs a container that writes its log as fast as the runtime accepts it.
// The size of its logs stays below a bound, which depends on how much it writes in half
// a period, and the probes of another pod continue and succeed.
func TestLogStorm(t *testing.T) {
	binary, err := rig.OurKubelet(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	const files, period = 3, 10 * time.Second
	size := resource.MustParse("1Mi")
	r := rig.Start(t,
		rig.Options{Kubelet: &rig.KubeletConfig{Binary: binary, Standalone: true,
			Edit: func(c *kubeletconfig.KubeletConfiguration) {
				quick(c)
				n := int32(files)
				c.ContainerLogMaxSize, c.ContainerLogMaxFiles, c.ContainerLogMonitorInterval = size.String(), &n,
					&metav1.Duration{Duration: period}
			}}})
	k := r.Kubelet
	apply := func(name, text string) {
		if err := os.WriteFile(filepath.Join(k.Manifests, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	apply("bystander.yaml", bystander)
	until(t, "the bystander to be asked", func() (string, bool) {
		n := probed(t, k, "successful")
		return fmt.Sprint(n), n > 3
	})
	failed := probed(t, k, "failed")
	apply("storm.yaml", storm)
	logs := filepath.Join(k.PodLogs, "default_storm-"+k.Node+"_*", "main")
	until(t, "all files that there may be", func() (string, bool) { // the rate is steady by then
		_, n := diskUse(t, logs)
		return fmt.Sprint(n), n >= files
	})
	before, at := lastLine(t, logs), time.Now()
	well := probed(t, k, "successful")
	var most int64
	until(t, "the bystander to be asked often", func() (string, bool) {
		n, _ := diskUse(t, logs)
		most = max(most, n)
		asked := probed(t, k, "successful") - well
		return fmt.Sprint(asked), asked >= 50
	})
	// including the prefix that the runtime adds to each line
	perSecond := float64(lastLine(t, logs)-before) * 2050 / time.Since(at).Seconds()
	if n := probed(t, k, "failed") - failed; n > 0 {
		t.Errorf("the bystander failed %v probes", n)
	}
	bound := int64(files * (float64(size.Value()) + period.Seconds()/2*perSecond))
	t.Logf("%.1f MB a second, at most %d MB on the disk; without the pace it would be %.0f MB", perSecond/1e6, most>>20,
		files*period.Seconds()*perSecond/1e6)
	if most > bound {
		t.Errorf("the log took %d bytes, want at most %d", most, bound)
	}
	if err := os.Remove(filepath.Join(k.Manifests, "storm.yaml")); err != nil {
		t.Fatal(err)
	}
	until(t, "the storm to be over", func() (string, bool) {
		_, there := diskUse(t, logs)
		return fmt.Sprint(there), there == 0
	})
}

var probeTotal = regexp.MustCompile(`(?m)^prober_probe_total\{.*pod="bystander-[^"]*".*result="([a-z]+)".*\} (\S+)$`)

// probed counts the bystander's probes of one result.
func probed(t *testing.T, k *rig.Kubelet, result string) (sum float64) {
	t.Helper()
	out, err := k.Get(t.Context(), "/metrics/probes")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range probeTotal.FindAllStringSubmatch(out, -1) {
		if m[1] == result {
			n, err := strconv.ParseFloat(m[2], 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
	}
	return sum
}

// diskUse is the size of the files of a log, and their number.
func diskUse(t *testing.T, pattern string) (bytes int64, files int) {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(pattern, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		if fi, err := os.Stat(f); err == nil { // otherwise it was removed meanwhile
			bytes += fi.Size()
			files++
		}
	}
	return bytes, files
}

// lastLine is the number of a line that was written just now.
func lastLine(t *testing.T, pattern string) (n int) {
	t.Helper()
	until(t, "a line", func() (string, bool) {
		list, err := filepath.Glob(filepath.Join(pattern, "0.log"))
		if err != nil || len(list) != 1 {
			return fmt.Sprint(list, err), false
		}
		f, err := os.Open(list[0])
		if err != nil {
			return err.Error(), false
		}
		defer f.Close()
		fi, err := f.Stat()
		if err != nil {
			return err.Error(), false
		}
		if _, err := f.Seek(max(fi.Size()-64<<10, 0), 0); err != nil {
			return err.Error(), false
		}
		found := false
		for in := bufio.NewScanner(f); in.Scan(); {
			if _, text, ok := strings.Cut(in.Text(), " F line "); ok {
				if _, err := fmt.Sscan(text, &n); err == nil {
					found = true
				}
			}
		}
		return "no line", found
	})
	return n
}
