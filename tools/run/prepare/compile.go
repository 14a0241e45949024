package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// compiler compiles the programs.
type compiler struct {
	golang, tags, ldflags, out string
	progress                   *progress
}

// compile fetches the modules and compiles the packages that are missing.
func (c compiler) compile(ctx context.Context) error {
	most, err := c.count(ctx)
	if err != nil {
		return err
	}
	done := 0
	var logged []string // by the compiler, beside the names of packages
	args := []string{
		"build", "-v", "-trimpath", "-buildvcs=false", "-tags", c.tags, "-ldflags", c.ldflags, "-o", c.out + "/",
	}
	_, err = c.run(ctx, append(args, programs...), func(line string) {
		if strings.Contains(line, " ") {
			logged = append(logged, line)
			return
		}
		done++
		c.progress.now("compiling: %d packages of at most %d", done, most)
	})
	if err != nil {
		return fmt.Errorf("compile %s: %w\n%s", strings.Join(programs, " and "), err, strings.Join(logged, "\n"))
	}
	if done > 0 {
		c.progress.line("compiled %d packages into %s/kubelet and %s/run", done, c.out, c.out)
	}
	return nil
}

// count returns the number of packages of the programs. The go command fetches the modules for that.
func (c compiler) count(ctx context.Context) (int, error) {
	modules := 0
	var logged []string
	list, err := c.run(ctx, append([]string{"list", "-deps", "-tags", c.tags}, programs...), func(line string) {
		logged = append(logged, line)
		if strings.HasPrefix(line, "go: downloading ") {
			modules++
			c.progress.now("fetching Go modules: %d so far", modules)
		}
	})
	if err != nil {
		return 0, fmt.Errorf("fetch Go modules: %w\n%s", err, strings.Join(logged[max(0, len(logged)-8):], "\n"))
	}
	if modules > 0 {
		c.progress.line("fetched %d Go modules", modules)
	}
	return bytes.Count(list, []byte("\n")), nil
}

// run runs the go command, calls line with each line of its standard error, and returns its output. The flags are those
// of `make build`, so that everything is compiled only once.
func (c compiler) run(ctx context.Context, args []string, line func(string)) ([]byte, error) {
	cmd := exec.CommandContext(ctx, c.golang, args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it removes its temporary files
	var out bytes.Buffer
	cmd.Stdout = &out
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		line(lines.Text())
	}
	if _, err := io.Copy(io.Discard, stderr); err != nil { // the rest, if a line was too long for the scanner
		return nil, err
	}
	err = cmd.Wait() // the output is complete from here on
	return out.Bytes(), err
}
