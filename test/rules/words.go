package rules

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// A refused word or phrase is literary where the trade has a term. The pattern is for comments, string literals,
// documents, and the words of identifiers, see [camelWords].
type refused struct {
	pattern, instead string
}

// refusedWords is the list. Patterns match whole words, in either case; a space matches a line break too, and in an
// identifier the beginning of a word.
var refusedWords = []refused{
	{`told`, "informed, notified, configured, reported, or the verb of what was done"},
	{`said`, "reported, stated, declared, logged, announced"},
	{`nobody`, "no pod, no client, no source: name the actor"},
	{`(somebody|anybody)`, "a client, a user, any pod: name the actor"},
	{`who(m)?ever`, "the caller, the client: name the actor"},
	{`by lot`, "at random"},
	{`(drawn|draws|draw) (by lot|anew|from a seed)`, "generated, selected at random"},
	{`(wound|winds|wind|winding) up`, "terminated, released"},
	{`(put|puts|putting)( pods| a pod| them| it| one)? out`, "evict"},
	{`(grow|grows|grown|growing) old`, "expire"},
	{`grown`, "expanded, increased"},
	{`politely`, "gracefully, with SIGTERM"},
	{`(taken|takes|take) (it |them |this )?away`, "removed, deleted"},
	{`(looked|looks|look) after`, "managed, handled"},
	{`going`, "terminating, about to"},
	{`(wish|wishes|wished)`, "request, desired state"},
	{`namesakes?`, "pod of the same full name"},
	{`unheard`, "without a source, unacknowledged"},
	{`uprooted`, "in a cgroup of another parent"},
	{`recalled`, "restored, read from the record"},
	{`(forgets|forgot|forgotten)`, "drops, removes, deletes"},
	{`bad days?`, "failures, errors"},
}

// A wordException allows refused words in files: those that a pattern of path.Match names. They must stand in text,
// which is a part of a comment, literal or document, or a whole identifier; "" is the whole file.
type wordException struct {
	files, text, why string
}

// wordExceptions are the texts that keep a refused word.
var wordExceptions = []wordException{
	{
		files: "test/rules/words*.go",
		why:   "the list itself and its test",
	},
	{
		files: "docs/parity/0[0-9]-*.md",
		why:   "the rows describe upstream's behaviour; their texts are the contract",
	},
	{
		files: "internal/pods/podsync/needs.go",
		text:  `json:"recalled,omitempty"`,
		why:   "a field of a file that earlier versions have written",
	},
	{
		files: "internal/pods/podsync/poddir/dirs_test.go",
		text:  `{"recalled": "a"`,
		why:   "a field of a file that earlier versions have written",
	},
	{
		files: "test/images/suite/userland.go",
		text:  "nobody:x:65534:65534:nobody:/home:/bin/false",
		why:   "the name of a user of Linux",
	},
	{
		files: "tools/conformance/main.go",
		text:  "--keep-going",
		why:   "a flag of ginkgo",
	},
}

// A text is something that is read for refused words.
type text struct {
	file  string
	line  int
	prose string // comment, string literal or line of a document
	name  string // identifier
}

// fileHead is the line before a manifest of a scenario, as in a txtar archive.
var fileHead = regexp.MustCompile(`^-- \S+ --$`)

// Words reads the Go files, documents and comments of scenarios below root and returns a sentence for each refused
// word, with the number of files read and the exceptions that were used.
func Words(root fs.FS, except []wordException) (violations []string, read int, used map[wordException]bool, err error) {
	used = map[wordException]bool{}
	type pattern struct {
		*regexp.Regexp
		instead string
	}
	var patterns []pattern
	for _, w := range refusedWords {
		match := regexp.MustCompile(`(?i)\b` + strings.ReplaceAll(w.pattern, " ", `\s+`) + `\b`)
		patterns = append(patterns, pattern{match, w.instead})
	}
	allowed := func(t text) bool {
		for _, e := range except {
			if ok, _ := path.Match(e.files, t.file); !ok {
				continue
			}
			if e.text == "" || t.name == e.text || t.name == "" && strings.Contains(t.prose, e.text) {
				used[e] = true
				return true
			}
		}
		return false
	}
	seen := map[string]bool{}
	check := func(t text) {
		for _, p := range patterns {
			if t.name != "" {
				if !p.MatchString(strings.Join(camelWords(t.name), " ")) || allowed(t) {
					continue
				}
				if key := t.file + " " + t.name; !seen[key] {
					seen[key] = true
					violations = append(violations, fmt.Sprintf("%s:%d: the name %s: write %s", t.file, t.line, t.name,
						p.instead))
				}
				continue
			}
			for _, at := range p.FindAllStringIndex(t.prose, -1) {
				found := strings.Join(strings.Fields(t.prose[at[0]:at[1]]), " ")
				if allowed(t) {
					continue
				}
				violations = append(violations, fmt.Sprintf("%s:%d: %q: write %s", t.file,
					t.line+strings.Count(t.prose[:at[0]], "\n"), found, p.instead))
			}
		}
	}
	err = fs.WalkDir(root, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			if base := e.Name(); name != "." && (strings.HasPrefix(base, ".") || base == "bin") {
				return fs.SkipDir
			}
			return nil
		}
		base := filepath.Base(name)
		goFile := strings.HasSuffix(base, ".go")
		document := strings.HasSuffix(base, ".md") || strings.HasSuffix(base, ".mk") || base == "Makefile"
		scenario := strings.HasSuffix(base, ".txt") && slices.Contains(strings.Split(path.Dir(name), "/"), "testdata")
		if !goFile && !document && !scenario {
			return nil
		}
		data, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		read++
		if document {
			check(text{file: name, line: 1, prose: string(data)})
			return nil
		}
		if scenario {
			for _, t := range scenarioComments(name, data) {
				check(t)
			}
			return nil
		}
		texts, err := textsOf(name, data)
		if err != nil {
			return err
		}
		for _, t := range texts {
			check(t)
		}
		return nil
	})
	if err != nil {
		return nil, 0, nil, fmt.Errorf("read texts: %w", err)
	}
	slices.Sort(violations)
	return violations, read, used, nil
}

// textsOf returns the comments, string literals and identifiers of a Go file.
func textsOf(name string, data []byte) ([]text, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, data, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	line := func(p token.Pos) int { return files.Position(p).Line }
	var out []text
	for _, group := range file.Comments {
		at, end := files.Position(group.Pos()).Offset, files.Position(group.End()).Offset
		// Markers become spaces, so that a phrase that goes over two lines is found.
		prose := strings.ReplaceAll(string(data[at:end]), "//", "  ")
		out = append(out, text{file: name, line: line(group.Pos()), prose: prose})
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				out = append(out, text{file: name, line: line(n.Pos()), prose: n.Value})
			}
		case *ast.Ident:
			out = append(out, text{file: name, line: line(n.Pos()), name: n.Name})
		}
		return true
	})
	return out, nil
}

// scenarioComments returns the comments of a scenario: groups of lines that begin with #. What a command shows, which
// is between ---- and an empty line, and the manifests at the end have none.
func scenarioComments(name string, data []byte) []text {
	var out []text
	shown, inGroup := false, false
	for i, line := range strings.Split(string(data), "\n") {
		if fileHead.MatchString(line) {
			break
		}
		if shown {
			shown = line != ""
			continue
		}
		shown = line == "----"
		comment, ok := strings.CutPrefix(strings.TrimSpace(line), "#")
		switch {
		case ok && inGroup:
			out[len(out)-1].prose += "\n" + comment
		case ok:
			out = append(out, text{file: name, line: i + 1, prose: comment})
		}
		inGroup = ok
	}
	return out
}

// camelWords returns the words of an identifier: podUID has pod and UID, and AWish has A and Wish.
func camelWords(name string) []string {
	var out []string
	runes := []rune(name)
	upper := func(i int) bool { return unicode.IsUpper(runes[i]) }
	start := 0
	for i, r := range runes {
		switch {
		case r == '_':
			out = append(out, string(runes[start:i]))
			start = i + 1
		case i > start && upper(i) && (!upper(i-1) || i+1 < len(runes) && unicode.IsLower(runes[i+1])):
			out = append(out, string(runes[start:i]))
			start = i
		}
	}
	return append(out, string(runes[start:]))
}
