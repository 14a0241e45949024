package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzLoad reads arbitrary text as a configuration file. The result is a configuration, or an error
// that names the file.
func FuzzLoad(f *testing.F) {
	for _, seed := range []string{
		head, head + standaloneOK + "maxPods: 9\n", head + "maxPods: many\nclusterDNS: {a: [b]}\n",
		head + "evictionHard: {memory.available: 5%, nodefs.available: -1}\n",
		`{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","logging":{"verbosity":99999999999}}`,
		"- a\n", "a: &x [*x]\n", "\x00", head + "tracing: {samplingRatePerMillion: -1}\n",
		head +
			"registerWithTaints: [{key: ''}]\nshutdownGracePeriodByPodPriority: [{priority: 1}]\nuserNamespaces: " +
			"{idsPerPod: 0}\nreservedSystemCPUs: 0-99999999999\n",
	} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, text string, dropIn bool) {
		dir := t.TempDir()
		path, flag := filepath.Join(dir, "k.yaml"), "--config="
		if dropIn {
			path, flag = filepath.Join(dir, "a.conf"), "--config-dir="
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		arg := flag + path
		if dropIn {
			arg = flag + dir
		}
		c, err := Load([]string{"--hostname-override=n", "--kubeconfig=x", arg})
		var ps Problems
		switch {
		case err == nil:
			_ = c.Show()
		case errors.As(err, &ps):
			for _, p := range ps {
				if p.Why == "" || p.Field == "" {
					t.Errorf("a problem without field or cause: %+v", p)
				}
			}
		case !strings.Contains(err.Error(), path):
			t.Errorf("the error does not name %s: %v", path, err)
		}
	})
}
