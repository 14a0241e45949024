package images

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// ShellArchive writes images with a shell and the usual small programs into dir and returns the archive's path. One
// static busybox provides all these programs. Each name gets an image of its own, with the name as a label. Without
// names it writes the image Shell.
func ShellArchive(ctx context.Context, busybox, dir string, names ...string) (string, error) {
	if len(names) == 0 {
		names = []string{Shell}
	}
	root, err := os.MkdirTemp(dir, "shell-")
	if err != nil {
		return "", fmt.Errorf("make image of a shell: %w", err)
	}
	defer os.RemoveAll(root)
	for name, mode := range map[string]os.FileMode{
		"bin": 0o755,
		"dev": 0o755,
		"etc": 0o755,
		"tmp": 0o777 | os.ModeSticky,
	} {
		if err := os.Mkdir(filepath.Join(root, name), 0o755); err != nil {
			return "", fmt.Errorf("make image of a shell: %w", err)
		}
		if err := os.Chmod(filepath.Join(root, name), mode); err != nil {
			return "", fmt.Errorf("make image of a shell: %w", err)
		}
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		return "", fmt.Errorf("make image of a shell: %w", err)
	}
	if err := os.WriteFile(filepath.Join(root, "bin", "busybox"), program, 0o755); err != nil {
		return "", fmt.Errorf("make image of a shell: %w", err)
	}
	programs, err := exec.CommandContext(ctx, busybox, "--list").Output()
	if err != nil {
		return "", fmt.Errorf("list programs of %s: %w", busybox, err)
	}
	for _, name := range strings.Fields(string(programs)) {
		if name == "busybox" {
			continue
		}
		if err := os.Symlink("busybox", filepath.Join(root, "bin", name)); err != nil {
			return "", fmt.Errorf("make image of a shell: %w", err)
		}
	}
	out := filepath.Join(dir, "shell.tar")
	var list []Image
	for _, name := range names {
		list = append(list, Image{Names: []string{name}, Root: root, Config: v1.Config{
			Cmd:    []string{"sh"},
			Env:    []string{"PATH=/bin"},
			Labels: map[string]string{"name": name},
		}})
	}
	return out, Archive(out, list...)
}
