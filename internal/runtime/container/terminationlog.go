package container

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
)

// makeTerminationLog makes the file a container may leave its last words in,
// and the mount that shows it there. Every instance of a container has its own,
// because the words of the last one are read after the next was started.
func (r *Runner) makeTerminationLog(p *v1.Pod, c *v1.Container) (pod.Mount, error) {
	dir := terminationLogs(r.cfg.RootDir, p.UID, c.Name)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return pod.Mount{}, fmt.Errorf("make the directory of container %s: %w", c.Name, err)
	}
	var id [4]byte
	rand.Read(id[:]) // never fails: without randomness the process ends
	file := filepath.Join(dir, hex.EncodeToString(id[:]))
	// Anybody inside may write it, whoever the container runs as.
	if err := writeFile(file, "", 0o666); err != nil {
		return pod.Mount{}, fmt.Errorf("make the termination log of container %s: %w", c.Name, err)
	}
	// A path without a slash before it is below the root, too.
	at := filepath.Clean("/" + c.TerminationMessagePath)
	return pod.Mount{HostPath: file, ContainerPath: at, SELinuxRelabel: true}, nil
}

// removeTerminationLogs removes the files that a container of that name was given to
// leave its last words in, of what is mounted into it. Nothing else is touched.
func (r *Runner) removeTerminationLogs(uid types.UID, container string, mounted []string) error {
	var errs []error
	for _, path := range mounted {
		if filepath.Dir(path) == terminationLogs(r.cfg.RootDir, uid, container) {
			errs = append(errs, removeFile(path))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove the termination log of container %s: %w", container, err)
	}
	return nil
}
