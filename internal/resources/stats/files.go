package stats

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"keelson/internal/pods/pod"
)

// space is the usage of a file system by some files.
type space struct{ bytes, inodes uint64 }

func (s *space) add(o space) { s.bytes += o.bytes; s.inodes += o.inodes }

// ofFile measures a file. A file that does not exist uses nothing.
func ofFile(path string) (space, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return space{}, nil
		}
		return space{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return space{bytes: uint64(st.Blocks) * 512, inodes: 1}, nil
}

// logsOf measures the log files of a container, including rotated ones.
func logsOf(podLogs string, ref pod.Ref, container string) (space, error) {
	dir := filepath.Join(podLogs, ref.Namespace+"_"+ref.Name+"_"+string(ref.UID), container)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return space{}, nil
	}
	if err != nil {
		return space{}, err
	}
	var sum space
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		s, err := ofFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return sum, err
		}
		sum.add(s)
	}
	return sum, nil
}

// messagesOf measures the termination message files of a pod's containers. Their size is up to the containers.
func messagesOf(dir string) (sum space, err error) {
	containers, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return sum, err
	}
	for _, c := range containers {
		files, err := os.ReadDir(filepath.Join(dir, c.Name()))
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				continue // removed in the meantime
			}
			return sum, err
		}
		for _, f := range files {
			s, err := ofFile(filepath.Join(dir, c.Name(), f.Name()))
			if err != nil {
				return sum, err
			}
			sum.add(s)
		}
	}
	return sum, nil
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }
