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

// makeTerminationLog creates a container's termination log and returns its mount. Every instance of
// a container has its own, because the message of the last one is still read after the next one has
// started.
func (r *Runner) makeTerminationLog(p *v1.Pod, c *v1.Container) (pod.Mount, error) {
	dir := terminationLogs(r.cfg.RootDir, p.UID, c.Name)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return pod.Mount{}, fmt.Errorf("create directory of container %s: %w", c.Name, err)
	}
	var id [4]byte
	rand.Read(id[:]) // never fails: without randomness the process is aborted
	file := filepath.Join(dir, hex.EncodeToString(id[:]))
	// The container may run as any user.
	if err := writeFile(file, "", 0o666); err != nil {
		return pod.Mount{}, fmt.Errorf("create termination log of container %s: %w", c.Name, err)
	}
	// A relative path is relative to the root.
	at := filepath.Clean("/" + c.TerminationMessagePath)
	return pod.Mount{HostPath: file, ContainerPath: at, SELinuxRelabel: true}, nil
}

// removeTerminationLogs removes the termination logs among the files mounted into a container.
// Nothing else is removed.
func (r *Runner) removeTerminationLogs(uid types.UID, container string, mounted []string) error {
	var errs []error
	for _, path := range mounted {
		if filepath.Dir(path) == terminationLogs(r.cfg.RootDir, uid, container) {
			errs = append(errs, removeFile(path))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove termination log of container %s: %w", container, err)
	}
	return nil
}
