package desired

import (
	"fmt"
	"io/fs"
	"syscall"
)

// stampOf includes the inode: a file renamed into place may have the size and
// the time of the one it replaces.
func stampOf(info fs.FileInfo) stamp {
	s := stamp{size: info.Size(), changed: info.ModTime()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.file = fmt.Sprintf("%d:%d:%d", st.Dev, st.Ino, st.Ctim.Nano())
	}
	return s
}
