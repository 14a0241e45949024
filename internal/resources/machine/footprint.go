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

// span is a range of the process's addresses.
type span struct{ from, to uintptr }

// ForgetProgram takes the pages of the program's own file out of this process's
// memory; those that are used come back by themselves, from the page cache. A
// start touches nearly all of a large program, and after it most of that only
// counts as used; all the more where the kernel maps 2 MiB of it at once, which it
// is asked not to do any more. Pages that differ from the file are left alone.
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
		// A kernel without huge pages does not know the first advice.
		if err := s.advise(unix.MADV_NOHUGEPAGE); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("forget pages of %s: %w", exe, err)
		}
		if err := s.advise(unix.MADV_DONTNEED); err != nil {
			return fmt.Errorf("forget pages of %s: %w", exe, err)
		}
	}
	return nil
}

// advise tells the kernel what is meant to become of the pages.
func (s span) advise(advice uintptr) error {
	if _, _, e := unix.Syscall(unix.SYS_MADVISE, s.from, s.to-s.from, advice); e != 0 {
		return e
	}
	return nil
}

// readOnlySpans are the mappings of a file that cannot be written and of which
// no page was changed, as /proc/self/smaps tells them.
func readOnlySpans(lines *bufio.Scanner, file string) ([]span, error) {
	var out []span
	var at span
	ours := false
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) == 0 {
			continue
		}
		if !strings.HasSuffix(f[0], ":") { // the head of a mapping: range, rights, offset, device, inode, file
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
