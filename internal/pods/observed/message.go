package observed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
	"keelson/internal/runtime/logs"
)

// terminationMessage returns the termination message of an ended container: the end of
// its message file or, if it failed without a message and its terminationMessagePolicy
// is FallbackToLogsOnError, the end of its log. A file that does not exist counts as
// empty; any other error is returned as the message, so that it shows in the pod's status.
func terminationMessage(ctx context.Context, c pod.Container) string {
	policy := v1.TerminationMessagePolicy(c.Annotations[pod.AnnotationTerminationMessagePolicy])
	fallback := policy == v1.TerminationMessageFallbackToLogsOnError && c.ExitCode != 0 && c.Reason != reasonCannotRun
	if path := c.Annotations[pod.AnnotationTerminationMessagePath]; path != "" {
		path = filepath.Clean("/" + path)
		for _, m := range c.Mounts {
			if filepath.Clean("/"+m.ContainerPath) != path {
				continue
			}
			b, err := readMessage(m.HostPath)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Sprintf("Error on reading termination log %s: %v", m.HostPath, err)
			}
			if len(b) > 0 || !fallback {
				return string(b)
			}
			break
		}
	}
	if !fallback {
		return ""
	}
	s, err := logs.Tail(ctx, c.LogPath, maxMessageLog, maxMessageLines)
	if err != nil {
		return fmt.Sprintf("Error on reading termination message from logs: %v", err)
	}
	return s
}

// readMessage reads the end of a file that a container could write. The container controls
// the file: a symbolic link is not followed, a pipe is not opened blocking, and only the
// last bytes are read.
func readMessage(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	from := max(fi.Size()-maxMessage, 0)
	return io.ReadAll(io.NewSectionReader(f, from, maxMessage))
}
