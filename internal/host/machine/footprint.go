package machine

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// span is an address range.
type span struct{ from, to uintptr }

// ForgetProgram drops the pages of the executable from this process's memory. Pages that are used again are loaded from
// the page cache. The start of the agent touches nearly all pages of its large executable, and they count as used
// memory. Huge pages would make this worse, so they are disabled for these mappings. Modified pages are kept.
func ForgetProgram() error {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("find own program: %w", err)
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return fmt.Errorf("read own memory map: %w", err)
	}
	defer f.Close()
	spans, err := readOnlySpans(bufio.NewScanner(f), exe)
	if err != nil {
		return fmt.Errorf("read own memory map: %w", err)
	}
	for _, s := range spans {
		// A kernel without huge pages does not support the first advice.
		if err := s.advise(unix.MADV_NOHUGEPAGE); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("forget pages of %s: %w", exe, err)
		}
		if err := s.advise(unix.MADV_DONTNEED); err != nil {
			return fmt.Errorf("forget pages of %s: %w", exe, err)
		}
	}
	return nil
}

// advise calls madvise.
func (s span) advise(advice uintptr) error {
	if _, _, e := unix.Syscall(unix.SYS_MADVISE, s.from, s.to-s.from, advice); e != 0 {
		return e
	}
	return nil
}

// readOnlySpans returns the mappings of a file that are not writable and have no modified pages, from the lines of
// /proc/self/smaps.
func readOnlySpans(lines *bufio.Scanner, file string) ([]span, error) {
	var out []span
	var at span
	ours := false
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) == 0 {
			continue
		}
		if !strings.HasSuffix(f[0], ":") { // first line of a mapping: range, mode, offset, device, inode, file
			from, to, ok := strings.Cut(f[0], "-")
			if !ok || len(f) < 5 {
				return nil, fmt.Errorf("unexpected line %q", lines.Text())
			}
			ours = len(f) >= 6 && strings.Join(f[5:], " ") == file && !strings.Contains(f[1], "w")
			a, err := strconv.ParseUint(from, 16, 64)
			if err != nil {
				return nil, err
			}
			b, err := strconv.ParseUint(to, 16, 64)
			if err != nil {
				return nil, err
			}
			at = span{uintptr(a), uintptr(b)}
			continue
		}
		if ours && f[0] == "Anonymous:" && len(f) > 1 && f[1] == "0" {
			out = append(out, at)
		}
	}
	return out, lines.Err()
}
