package rules

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"keelson/test/kit/parity"
)

// ofNetworkPlugins are words that every program that calls network plugins contains: their library, or the variable and
// the directories of their protocol.
var ofNetworkPlugins = []string{"containernetworking", "CNI_COMMAND", "/opt/cni", "cni/net.d"}

// TestNoNetworkPluginIsCalled: the runtime makes the networks of pods. The agent calls no network plugin. It only reads
// the NetworkReady condition of the runtime.
func TestNoNetworkPluginIsCalled(t *testing.T) {
	parity.ProvesPart(t, 2, "PLUG-36")
	read := 0
	for _, dir := range []string{"internal", "cmd"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, e os.DirEntry, err error) error {
			if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			read++
			text, err := os.ReadFile(path)
			for _, word := range ofNetworkPlugins {
				if strings.Contains(string(text), word) {
					t.Errorf("%s speaks of %s: networks are the runtime's", path, word)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if read < 100 {
		t.Errorf("%d files were read", read)
	}
	for _, p := range packages(t) {
		if _, ok := productPath(p.ImportPath); !ok {
			continue
		}
		for _, imp := range p.Imports {
			if strings.Contains(imp, ofNetworkPlugins[0]) {
				t.Errorf("%s imports %s", p.ImportPath, imp)
			}
		}
	}
}
