package fakecri

import (
	"archive/tar"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protojson"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A container's files: real ones below its mounts, in memory elsewhere. Runtime.mu
// guards them.

func (c *container) readFile(path string) ([]byte, error) {
	if host, ok := c.hostPath(path); ok {
		return os.ReadFile(host)
	}
	if text, ok := c.files[filepath.Clean(path)]; ok {
		return text, nil
	}
	return nil, fs.ErrNotExist
}

func (c *container) hasFile(path string) bool {
	if host, ok := c.hostPath(path); ok {
		_, err := os.Stat(host)
		return err == nil
	}
	_, ok := c.files[filepath.Clean(path)]
	return ok
}

func (c *container) appendFile(path, text string, keep bool) error {
	host, ok := c.hostPath(path)
	if !ok {
		path = filepath.Clean(path)
		if !keep {
			c.files[path] = nil
		}
		c.files[path] = append(c.files[path], text...)
		return nil
	}
	flags := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	if !keep {
		flags |= os.O_TRUNC
	}
	f, err := os.OpenFile(host, flags, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

func (c *container) removeFile(path string) error {
	if host, ok := c.hostPath(path); ok {
		return os.Remove(host)
	}
	path = filepath.Clean(path)
	if _, ok := c.files[path]; !ok {
		return fs.ErrNotExist
	}
	delete(c.files, path)
	return nil
}

// openLog opens the log at the path that the kubelet has set. As containerd does, it
// makes the directory if it does not exist, and does not follow a link.
func (c *container) openLog() error {
	if c.logPath == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(c.logPath), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(c.logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW, 0o640)
	if err != nil {
		return err
	}
	c.log = f
	return nil
}

func (c *container) closeLog() {
	if c.log != nil {
		c.log.Close() // nothing is buffered
		c.log = nil
	}
}

// output is a piece of what a container printed.
type output struct {
	stderr bool
	text   string
}

// print writes what the command printed to the log, a line of CRI format for
// each of its lines, and to the attached clients.
func (c *container) print(stderr bool, text string) {
	stderr = stderr && !c.config.GetTty() // a terminal has one stream
	for _, t := range c.tails {
		select {
		case t <- output{stderr, text}:
		default: // a client that does not read loses output, as with a full pipe
		}
	}
	if c.log == nil {
		return
	}
	stream := cri.Stdout
	if stderr {
		stream = cri.Stderr
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		tag := cri.LogTagFull
		if !strings.HasSuffix(line, "\n") {
			tag, line = cri.LogTagPartial, line+"\n"
		}
		fmt.Fprintf(&b, "%s %s %s %s", time.Now().Format(time.RFC3339Nano), stream, tag, line)
	}
	// A full disk loses output and keeps the container running, as it does
	// with a real runtime.
	_, _ = c.log.WriteString(b.String())
}

// writeCheckpoint writes a tar with the container's configuration.
func writeCheckpoint(path string, c *container) error {
	text, err := protojson.Marshal(c.config)
	if err != nil {
		return fmt.Errorf("render configuration: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	if err := w.WriteHeader(&tar.Header{Name: "config.dump", Mode: 0o600, Size: int64(len(text))}); err != nil {
		return err
	}
	if _, err := w.Write(text); err != nil {
		return err
	}
	return w.Close()
}
