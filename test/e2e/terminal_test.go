//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal is a pseudo terminal in which a command runs.
type terminal struct {
	t      *testing.T
	cmd    *exec.Cmd
	screen *os.File
	end    func() error // waits for the command, and until all its output has been read

	mu    sync.Mutex
	shown bytes.Buffer
}

// inTerminal starts a command in a terminal of its own, which is its controlling terminal: the
// command gets a signal when the size changes. It is killed at the end of the test.
func inTerminal(t *testing.T, cmd *exec.Cmd, rows, columns uint16) *terminal {
	t.Helper()
	screen, tty, err := openTerminal()
	if err != nil {
		t.Fatalf("open terminal: %v", err)
	}
	m := &terminal{t: t, cmd: cmd, screen: screen}
	m.resize(rows, columns)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err = cmd.Start()
	tty.Close() // the command has its own
	if err != nil {
		screen.Close()
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		_, _ = io.Copy(writerFunc(m.show), screen) // ends with an error when no process has the terminal open
	})
	m.end = sync.OnceValue(func() error {
		err := cmd.Wait()
		reading.Wait()
		screen.Close()
		return err
	})
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = m.end()
	})
	return m
}

func openTerminal() (screen, tty *os.File, err error) {
	screen, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	fd := int(screen.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		screen.Close()
	}
	return screen, tty, err
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func (m *terminal) show(b []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.shown.Write(b)
}

func (m *terminal) text() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.shown.String()
}

// types sends input to the command.
func (m *terminal) types(keys string) {
	m.t.Helper()
	if _, err := io.WriteString(m.screen, keys); err != nil {
		m.t.Fatalf("type %q: %v", keys, err)
	}
}

// sees waits until the text has appeared.
func (m *terminal) sees(text string) {
	m.t.Helper()
	until(m.t, fmt.Sprintf("%q on the terminal", text), func() (string, bool) {
		have := m.text()
		return fmt.Sprintf("%q", have), bytes.Contains([]byte(have), []byte(text))
	})
}

func (m *terminal) resize(rows, columns uint16) {
	m.t.Helper()
	if err := unix.IoctlSetWinsize(int(m.screen.Fd()), unix.TIOCSWINSZ, &unix.Winsize{
		Row: rows,
		Col: columns,
	}); err != nil {
		m.t.Fatalf("resize terminal: %v", err)
	}
}

// ended waits for the end of the command and returns all that has appeared.
func (m *terminal) ended() (string, error) {
	err := m.end()
	return m.text(), err
}
