package hostpath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// checkType creates a path if its type permits, and then checks its type, following symlinks.
func checkType(path string, want v1.HostPathType) error {
	st, err := os.Stat(path)
	if err != nil { // also for a path below a file, which cannot exist
		if err := makeMissing(path, want); err != nil {
			return err
		}
		st, err = os.Stat(path)
	}
	var mode fs.FileMode = fs.ModeIrregular // if it does not exist
	if err == nil {
		mode = st.Mode()
	}
	var ok bool
	var name string
	switch want {
	case v1.HostPathDirectory, v1.HostPathDirectoryOrCreate:
		ok, name = mode.IsDir(), "a directory"
	case v1.HostPathFile, v1.HostPathFileOrCreate:
		ok, name = mode.IsRegular(), "a file"
	case v1.HostPathSocket:
		ok, name = mode&fs.ModeSocket != 0, "a socket file"
	case v1.HostPathCharDev:
		ok, name = mode&fs.ModeCharDevice != 0, "a character device"
	case v1.HostPathBlockDev:
		ok, name = mode&fs.ModeDevice != 0 && mode&fs.ModeCharDevice == 0, "a block device"
	default:
		return fmt.Errorf("%s is an invalid volume type", want)
	}
	if ok {
		return nil
	}
	failed := fmt.Errorf("hostPath type check failed: %s is not %s", path, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return pod.ShowAs(failed.Error(), fmt.Errorf("%w: %w", failed, err))
	}
	return failed
}

// makeMissing creates what a type ending in OrCreate requests. The parent directory of a file is
// not created.
func makeMissing(path string, want v1.HostPathType) error {
	switch want {
	case v1.HostPathDirectoryOrCreate:
		return os.MkdirAll(path, 0o755)
	case v1.HostPathFileOrCreate:
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		return f.Close()
	}
	return nil
}
