package images

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// arch is the architecture of the images: this machine's.
const arch = runtime.GOARCH

// OwnEnv is an environment variable with the path of an archive that Own made before. It is for machines that cannot
// compile.
const OwnEnv = "KEELSON_OWN_IMAGES"

// Own compiles the project's own programs, writes their images as one archive into dir, and returns the archive's path.
// checkout is the folder of the project's go.mod.
func Own(ctx context.Context, checkout, dir string) (string, error) {
	if made := os.Getenv(OwnEnv); made != "" {
		return made, nil
	}
	work, err := os.MkdirTemp(dir, "images-")
	if err != nil {
		return "", fmt.Errorf("make images: %w", err)
	}
	defer os.RemoveAll(work)
	roots := map[string]string{}
	for _, prog := range []string{"pause", "demo"} {
		root := filepath.Join(work, prog)
		if err := Compile(ctx, checkout, "./test/images/"+prog, filepath.Join(root, prog)); err != nil {
			return "", err
		}
		roots[prog] = root
	}
	for _, d := range []string{"tmp", "etc", "data"} {
		if err := os.MkdirAll(filepath.Join(roots["demo"], d), 0o755); err != nil {
			return "", fmt.Errorf("make images: %w", err)
		}
	}
	if err := os.Chmod(filepath.Join(roots["demo"], "tmp"), 0o777|os.ModeSticky); err != nil {
		return "", fmt.Errorf("make images: %w", err)
	}
	out := filepath.Join(dir, "own.tar")
	return out, Archive(out,
		Image{
			Names: []string{Pause, PauseSandbox}, Root: roots["pause"],
			Config: v1.Config{Entrypoint: []string{"/pause"}, User: "65535:65535"},
		},
		Image{
			Names: []string{Demo}, Root: roots["demo"],
			Config: v1.Config{
				Entrypoint: []string{"/demo"}, Cmd: []string{"serve"},
				ExposedPorts: map[string]struct{}{"8080/tcp": {}},
			},
		},
	)
}

// Compile makes one static program of the project.
func Compile(ctx context.Context, checkout, pkg, out string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", out, pkg)
	cmd.Dir = checkout
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if logged, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compile %s: %w\n%s", pkg, err, logged)
	}
	return nil
}
