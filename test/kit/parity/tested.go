package parity

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// module is the module whose tests claim rows.
const module = "keelson"

// code identifies what a test ran against.
type code struct {
	commit      string // empty outside a git checkout
	fingerprint string
}

var (
	testedMu sync.Mutex
	testedBy = map[string]code{} // by package; a test binary has one, its external tests the same
)

// tested identifies the code that the tests of this process go through. The
// working directory of a test is that of its package, in the module.
func tested(pkg string) (code, error) {
	testedMu.Lock()
	defer testedMu.Unlock()
	if c, ok := testedBy[pkg]; ok {
		return c, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return code{}, fmt.Errorf("find the module: %w", err)
	}
	root, err := moduleRoot(dir)
	if err != nil {
		return code{}, err
	}
	sum, err := NewFingerprints(root, module).Of(pkg)
	if err != nil {
		return code{}, err
	}
	c := code{
		commit:      Commit(root),
		fingerprint: sum,
	}
	testedBy[pkg] = c
	return c, nil
}

func moduleRoot(dir string) (string, error) {
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("find the module: no go.mod at or above the working directory")
		}
		dir = parent
	}
}

// Commit names the commit that is checked out at root, with the suffix -changed if the
// checkout differs from it. It is empty outside of a git checkout, as in an unpacked archive.
func Commit(root string) string {
	head, err := exec.Command("git", "-C", root, "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return ""
	}
	name := strings.TrimSpace(string(head))
	changes, err := exec.Command("git", "-C", root, "status", "--porcelain").Output()
	if err != nil || len(changes) > 0 {
		name += "-changed"
	}
	return name
}
