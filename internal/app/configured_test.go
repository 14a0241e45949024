package app

import (
	"os"
	"testing"

	"keelson/internal/config"
)

const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// configured reads a configuration file of a standalone node that suits every
// machine, with text added to it.
func configured(t *testing.T, text string, flags ...string) *config.Config {
	t.Helper()
	file := t.TempDir() + "/k.yaml"
	if err := os.WriteFile(file,
		[]byte(head+
			"authentication: {webhook: {enabled: false}, anonymous: {enabled: true}}\nauthorization: {mode: AlwaysAllow}\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(append([]string{"--hostname-override=n1", "--config=" + file}, flags...))
	if err != nil {
		t.Fatal(err)
	}
	return c
}
