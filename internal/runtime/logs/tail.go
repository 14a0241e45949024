package logs

import (
	"context"
	"fmt"
	"io"
)

const block = 16 << 10

// tailStart returns the offset of the last n lines of a file. A partial line at the end counts.
func tailStart(f io.ReaderAt, size int64, n int64) (int64, error) {
	if n <= 0 {
		return size, nil
	}
	buf := make([]byte, block)
	ends := int64(-1) // the end of the file ends a line, complete or not
	for right := size; right > 0; {
		left := max(right-block, 0)
		b := buf[:right-left]
		if _, err := f.ReadAt(b, left); err != nil {
			return 0, fmt.Errorf("read log: %w", err)
		}
		for i := len(b) - 1; i >= 0; i-- {
			if b[i] != '\n' && left+int64(i) != size-1 {
				continue
			}
			if ends++; ends == n {
				return left + int64(i) + 1, nil
			}
		}
		right = left
	}
	return 0, nil
}

// Tail returns the end of a container's output, both streams together: at most maxBytes of the last
// lines. The result is held in memory; it is for status messages, not for serving logs.
func Tail(ctx context.Context, path string, maxBytes int, lines int64) (string, error) {
	w := &lastBytes{max: maxBytes}
	if err := ReadLogs(ctx, path, Options{TailLines: &lines}, w, w, nil); err != nil {
		return "", err
	}
	return string(w.buf), nil
}

// lastBytes keeps a suffix of what is written to it.
type lastBytes struct {
	buf []byte
	max int
}

func (w *lastBytes) Write(p []byte) (int, error) {
	n := len(p)
	if len(p) >= w.max {
		w.buf = append(w.buf[:0], p[len(p)-w.max:]...)
		return n, nil
	}
	if over := len(w.buf) + len(p) - w.max; over > 0 {
		w.buf = append(w.buf[:0], w.buf[over:]...)
	}
	w.buf = append(w.buf, p...)
	return n, nil
}
