package rules

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// ownBackoffs are the files that double a pause by hand, with the reason.
var ownBackoffs = map[string]string{
	"internal/runtime/image/plan.go":   "the pause is part of the decision about a pull, which is data",
	"internal/pods/podplan/backoff.go": "the pause is part of the decision about a restart, which is data",
	"internal/pods/probe/prober.go":    "the pause ends with the period of the probe, and not with a last one",
	"internal/pods/observed/serve.go":  "the number of reads in a row is bounded, and counts without a pause, too",
	"internal/config/settings/pods.go": "it is a timeout",
}

// doubles matches a pause that is doubled.
var doubles = regexp.MustCompile(
	`m(in|ax)\(2 ?\*|min\([\w.]+ ?\* ?2\b|(?i:pause|wait|delay|retry)\w* \*= 2|(?i:min|first)\w* ?<<`,
)

// Backoffs returns a message for each line below a directory that doubles a pause by hand instead of using
// clock.Backoff or package reconcile. The names in ownBackoffs are relative to root.
func Backoffs(root, dir string) (violations []string, used map[string]bool, err error) {
	used = map[string]bool{}
	err = filepath.WalkDir(filepath.Join(root, dir), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		n := 0
		for line := range strings.Lines(string(text)) {
			n++
			code, _, _ := strings.Cut(line, "//")
			if !doubles.MatchString(code) {
				continue
			}
			if _, listed := ownBackoffs[name]; listed {
				used[name] = true
				continue
			}
			violations = append(violations, fmt.Sprintf("%s:%d doubles a pause by hand: use clock.Backoff or package "+
				"reconcile, or say in test/rules why it cannot", name, n))
		}
		return nil
	})
	slices.Sort(violations)
	return violations, used, err
}
