package decisions

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"
)

// Every page is found by its number, and the README lists it with its title.
func TestEveryDecisionIsListed(t *testing.T) {
	readme, err := pages.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := fs.Glob(pages, "[0-9]*.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for _, f := range files {
		number, _, _ := strings.Cut(f, "-")
		if other, ok := seen[number]; ok {
			t.Errorf("%s and %s have one number", other, f)
		}
		seen[number] = f
		title, ok := Title(number)
		if !ok {
			t.Errorf("%s has no title", f)
		}
		if line := fmt.Sprintf("| [%s](%s) | %s |\n", number, f, title); !strings.Contains(string(readme), line) {
			t.Errorf("the README lacks %q", line)
		}
	}
	if len(seen) == 0 {
		t.Error("no decision was found")
	}
	if _, ok := Title("9999"); ok {
		t.Error("a decision that does not exist has a title")
	}
}
