package need

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Env is the environment variable that is set under continuous integration.
const Env = "CI"

// Skip skips the test because of something that the machine lacks. The reason is constant;
// detail, such as an error, is shown behind it. Under continuous integration the test
// fails instead unless the skip is listed.
func Skip(t testing.TB, reason string, detail ...any) {
	t.Helper()
	message := reason
	if len(detail) > 0 {
		message += ": " + strings.TrimSuffix(fmt.Sprintln(detail...), "\n")
	}
	if os.Getenv(Env) != "" && !isListed(t.Name(), reason) {
		t.Fatalf("skipped under %s, and the skip is not listed in test/kit/need/listed.go: %s", Env, message)
	}
	t.Skip(message)
}

// Root skips the test unless it runs as root. The reason names what root is needed
// for, such as mounting.
func Root(t testing.TB, reason string) {
	t.Helper()
	if os.Geteuid() != 0 {
		Skip(t, reason+" needs root")
	}
}

// isListed reports whether a test, or the test that it is a subtest of, may be skipped for
// the reason.
func isListed(test, reason string) bool {
	for _, l := range listed {
		if l.reason == reason && (test == l.test || strings.HasPrefix(test, l.test+"/")) {
			return true
		}
	}
	return false
}
