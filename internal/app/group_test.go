package app

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
)

const panickingPart = "KEELSON_TEST_PANICKING_PART"

// A panic in a part that the agent cannot do without ends the process: its exit status is
// not zero, and what it wrote names the part and has the stack.
func TestPanicOfPartEndsAgent(t *testing.T) {
	if os.Getenv(panickingPart) != "" {
		g := newGroup(slog.New(slog.NewTextHandler(os.Stdout, nil)))
		g.start("sources", func(ctx context.Context) error {
			panic("the sources are in disorder")
		})
		_ = g.wait(t.Context())
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPanicOfPartEndsAgent$")
	cmd.Env = append(os.Environ(), panickingPart+"=yes")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 {
		t.Errorf("ended with %v", err)
	}
	for _, want := range []string{
		`msg="panic in an essential part" part=sources panic="the sources are in disorder"`,
		"panic: part sources failed: the sources are in disorder",
		"group_test.go:",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}
