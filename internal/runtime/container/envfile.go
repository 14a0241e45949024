package container

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	v1 "k8s.io/api/core/v1"
)

// maxEnvFile bounds how much of a file that a container wrote is read. It is
// more than the kernel lets an environment hold.
const maxEnvFile = 4 << 20

// fileValue is what a fileKeyRef stands for: a value from a file that another
// container of the pod wrote into an emptyDir. ok is false when the file or the
// key is missing.
func (r *Runner) fileValue(p *v1.Pod, ref *v1.FileKeySelector) (value string, ok bool, err error) {
	if !hasEmptyDir(p, ref.VolumeName) {
		return "", false, fmt.Errorf("volume %s of the env file is not an emptyDir of the pod", ref.VolumeName)
	}
	// Containers own what is in the volume: links must not lead out of it, and
	// anything but a file could keep the reader waiting.
	root, err := os.OpenRoot(emptyDirPath(r.cfg.RootDir, p.UID, ref.VolumeName))
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("open volume %s: %w", ref.VolumeName, err)
	}
	defer root.Close()
	info, err := root.Stat(ref.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("look at env file %s of volume %s: %w", ref.Path, ref.VolumeName, err)
	}
	if !info.Mode().IsRegular() {
		return "", false, fmt.Errorf("env file %s of volume %s is not a regular file", ref.Path, ref.VolumeName)
	}
	f, err := root.OpenFile(ref.Path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", false, fmt.Errorf("open env file %s of volume %s: %w", ref.Path, ref.VolumeName, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxEnvFile+1))
	if err != nil {
		return "", false, fmt.Errorf("read env file %s of volume %s: %w", ref.Path, ref.VolumeName, err)
	}
	if len(b) > maxEnvFile {
		return "", false, fmt.Errorf("env file %s of volume %s is larger than %d bytes", ref.Path, ref.VolumeName, maxEnvFile)
	}
	value, ok, err = envFileValue(string(b), ref.Key)
	if err != nil {
		return "", false, fmt.Errorf("read env file %s of volume %s: %w", ref.Path, ref.VolumeName, err)
	}
	return value, ok, nil
}

func hasEmptyDir(p *v1.Pod, volume string) bool {
	for i := range p.Spec.Volumes {
		if v := &p.Spec.Volumes[i]; v.Name == volume {
			return v.EmptyDir != nil
		}
	}
	return false
}

// envFileValue finds a key's first value in an env file. The format is a small
// part of the shell's: lines of KEY='value', where the value is taken as it
// stands and may span lines; empty lines; comments that begin with #. White
// space after the equals sign ends the value before it began.
func envFileValue(text, key string) (value string, ok bool, err error) {
	for line := 1; text != ""; line++ {
		this, rest, _ := strings.Cut(text, "\n")
		trimmed := strings.TrimSpace(this)
		if trimmed == "" || trimmed[0] == '#' {
			text = rest
			continue
		}
		name, after, found := strings.Cut(strings.TrimLeft(this, " \t"), "=")
		if !found {
			return "", false, fmt.Errorf("line %d: not of the form KEY='value'", line)
		}
		name = strings.TrimRight(name, " \t")
		switch {
		case strings.TrimSpace(after) == "" || after[0] == ' ' || after[0] == '\t':
			value, text = "", rest
		case after[0] != '\'':
			return "", false, fmt.Errorf("line %d: value of %q is not in single quotes", line, name)
		default:
			// The value begins where this line does and may end on a later one.
			from := text[len(this)-len(after)+1:]
			end := strings.IndexByte(from, '\'')
			if end < 0 {
				return "", false, fmt.Errorf("line %d: value of %q has no closing quote", line, name)
			}
			value = from[:end]
			line += strings.Count(value, "\n")
			var tail string
			tail, text, _ = strings.Cut(from[end+1:], "\n")
			if tail = strings.TrimSpace(tail); tail != "" && tail[0] != '#' {
				return "", false, fmt.Errorf("line %d: unexpected text after the value of %q", line, name)
			}
		}
		if name == key {
			return value, true, nil
		}
	}
	return "", false, nil
}
