package container

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// maxEnvFile bounds how much of a file is read that a container wrote. It is more than the kernel
// accepts as an environment.
const maxEnvFile = 4 << 20

// fileValue returns the value of a fileKeyRef, from a file that another container of the pod wrote
// into an emptyDir. ok is false if an optional key or file does not exist. As upstream, an empty
// value counts as missing.
func (r *Runner) fileValue(p *v1.Pod, ref *v1.FileKeySelector) (value string, ok bool, err error) {
	if !hasEmptyDir(p, ref.VolumeName) {
		return "", false, fmt.Errorf("cannot find the volume %q referenced by FileKeyRef", ref.VolumeName)
	}
	dir := emptyDirPath(r.cfg.RootDir, p.UID, ref.VolumeName)
	value, err = readEnvFile(dir, ref)
	switch {
	case errors.Is(err, fs.ErrNotExist) && isTrue(ref.Optional):
		return "", false, nil
	case err != nil:
		return "", false, pod.ShowAs("couldn't parse env file",
			fmt.Errorf("read env file %s of volume %s: %w", ref.Path, ref.VolumeName, err))
	case value != "":
		return value, true, nil
	case isTrue(ref.Optional):
		return "", false, nil
	}
	return "", false, fmt.Errorf("environment variable key %q not found in file %q", ref.Key,
		filepath.Join(dir, ref.Path))
}

// readEnvFile returns the value of a key in an env file. Containers control the content of the
// volume: symlinks must not escape it, and opening a FIFO or device could block.
func readEnvFile(dir string, ref *v1.FileKeySelector) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	info, err := root.Stat(ref.Path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", errors.New("not a regular file")
	}
	f, err := root.OpenFile(ref.Path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxEnvFile+1))
	if err != nil {
		return "", err
	}
	if len(b) > maxEnvFile {
		return "", fmt.Errorf("larger than %d bytes", maxEnvFile)
	}
	return envFileValue(string(b), ref.Key)
}

func hasEmptyDir(p *v1.Pod, volume string) bool {
	for i := range p.Spec.Volumes {
		if v := &p.Spec.Volumes[i]; v.Name == volume {
			return v.EmptyDir != nil
		}
	}
	return false
}

// envFileValue returns a key's first value in an env file, "" if there is none. The format is a
// small subset of shell syntax: lines of KEY='value', where the value is literal and may span
// lines; empty lines; comments that begin with #. White space after the equals sign makes the value
// empty.
func envFileValue(text, key string) (value string, err error) {
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for n := 0; n < len(lines); n++ {
		line := strings.TrimLeft(lines[n], blank)
		if line == "" || line[0] == '#' {
			continue
		}
		name, after, found := strings.Cut(line, "=")
		switch {
		case !found:
			return "", fmt.Errorf("line %d: missing '='", n+1)
		case name == "":
			return "", fmt.Errorf("line %d: empty variable name", n+1)
		case strings.TrimRight(name, blank) != name:
			return "", fmt.Errorf("line %d: white space before '='", n+1)
		case strings.TrimLeft(after, blank) != after:
			if name == key {
				return "", nil
			}
			continue
		case !strings.HasPrefix(after, "'"):
			return "", fmt.Errorf("line %d: value of %q is not in single quotes", n+1, name)
		}
		first := n
		value, rest, closed := strings.Cut(after[1:], "'")
		for !closed {
			if n++; n == len(lines) || n == len(lines)-1 && lines[n] == "" {
				return "", fmt.Errorf("line %d: value of %q has no closing quote", first+1, name)
			}
			var more string
			more, rest, closed = strings.Cut(lines[n], "'")
			value += "\n" + more
		}
		if rest = strings.TrimLeft(rest, blank); rest != "" && rest[0] != '#' {
			return "", fmt.Errorf("line %d: unexpected text after the value of %q", n+1, name)
		}
		if name == key {
			return value, nil
		}
	}
	return "", nil
}

// blank is the white space allowed around values of an env file.
const blank = " \t"
