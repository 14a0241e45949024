// Package decisions is the list of decisions as data: a test that shows a
// deviation from upstream names the decision it goes back to. The Markdown is
// the source; this file only reads its titles.
package decisions

import (
	"embed"
	"io/fs"
	"regexp"
	"strings"
	"sync"
)

//go:embed *.md
var pages embed.FS

var (
	fileName = regexp.MustCompile(`^([0-9]{4})-.+\.md$`)
	// Some titles repeat the number.
	heading = regexp.MustCompile(`^# (?:[0-9]{4}\. )?(.+)`)
)

// Title returns the title of the decision with this number of four digits.
func Title(number string) (string, bool) {
	title, ok := load()[number]
	return title, ok
}

// load panics on a page that cannot be read: the pages are compiled in.
var load = sync.OnceValue(func() map[string]string {
	files, err := fs.ReadDir(pages, ".")
	if err != nil {
		panic(err)
	}
	titles := map[string]string{}
	for _, f := range files {
		m := fileName.FindStringSubmatch(f.Name())
		if m == nil {
			continue
		}
		text, err := pages.ReadFile(f.Name())
		if err != nil {
			panic(err)
		}
		first, _, _ := strings.Cut(string(text), "\n")
		if h := heading.FindStringSubmatch(first); h != nil {
			titles[m[1]] = h[1]
		}
	}
	return titles
})
