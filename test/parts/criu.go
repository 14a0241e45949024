package parts

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// criuRelease is the Debian release of the criu package. bookworm has 3.17.1, which fails on the vDSO of recent
// kernels. 4.1 was observed to dump with kernel 6.18.
const criuRelease = "trixie"

// CRIU returns a folder with criu, which runtimes use for checkpoints. It includes its own libraries, so it also runs
// on an older release.
func (b *Builder) CRIU(ctx context.Context) (string, error) {
	own, err := codename()
	if err != nil {
		return "", fmt.Errorf("find criu: %w", err)
	}
	tree, err := b.unpackFrom(ctx, criuRelease, own != criuRelease, "criu", true, "criu")
	if err != nil {
		return "", err
	}
	loaders, err := filepath.Glob(filepath.Join(tree, "usr", "lib", "*-linux-gnu", "ld-linux-*.so.*"))
	if err != nil || len(loaders) != 1 {
		return "", fmt.Errorf("find the loader of criu in %s: %v, %w", tree, loaders, err)
	}
	dir := filepath.Join(filepath.Dir(tree), "bin-"+filepath.Base(tree))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make criu script: %w", err)
	}
	script := fmt.Sprintf("#!/bin/sh\nexec %s --library-path %s --argv0 criu %s/usr/sbin/criu \"$@\"\n", loaders[0],
		filepath.Dir(loaders[0]), tree)
	tmp := filepath.Join(dir, "criu.part")
	if err := os.WriteFile(tmp, []byte(script), 0o755); err != nil {
		return "", fmt.Errorf("make criu script: %w", err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, "criu")); err != nil {
		return "", fmt.Errorf("make criu script: %w", err)
	}
	return dir, nil
}
