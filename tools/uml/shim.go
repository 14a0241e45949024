package uml

import (
	"context"
	_ "embed"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed shim/ptrace.c
var shimSource string

const shimFile = "ptrace.so"

// compileShim compiles the library shim/ptrace.c.
func compileShim(ctx context.Context, dir string) error {
	cmd := exec.CommandContext(ctx,
		"gcc", "-O2", "-Wall", "-shared", "-fPIC", "-x", "c", "-o", filepath.Join(dir, shimFile), "-")
	cmd.Stdin = strings.NewReader(shimSource)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compile shim: %w: %s", err, out)
	}
	return nil
}
