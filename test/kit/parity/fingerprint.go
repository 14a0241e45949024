package parity

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// product is the directory of the binary that tests below test/ run as a
// process or build from the parts of internal/app.
const product = "cmd/kubelet"

// Fingerprints hashes the code that tests go through: the files of a test's own
// package and of every package of the module that it imports, with the module
// versions of go.mod. Tests below test/ run the product's binary too, which they
// do not import. The zero value is not usable; a Fingerprints serves one goroutine.
type Fingerprints struct {
	root, module string
	dirs         map[string]directory
}

// directory is the part of a fingerprint that comes from one directory.
type directory struct {
	sum     string
	imports []string // directories of the module, relative to its root
}

// NewFingerprints hashes the module that lies at root.
func NewFingerprints(root, module string) *Fingerprints {
	return &Fingerprints{
		root:   root,
		module: module,
		dirs:   map[string]directory{},
	}
}

// Of returns the fingerprint of the tests of one package, given by its import path.
// It changes whenever a file changes that one of the tests could use.
func (f *Fingerprints) Of(pkg string) (string, error) {
	rel, ok := f.relative(pkg)
	if !ok {
		return "", fmt.Errorf("fingerprint %s: not a package of module %s", pkg, f.module)
	}
	pending := []string{rel}
	if strings.HasPrefix(rel, "test/") {
		pending = append(pending, product)
	}
	reached := map[string]string{}
	for len(pending) > 0 {
		rel := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		if _, ok := reached[rel]; ok {
			continue
		}
		d, err := f.directory(rel)
		if err != nil {
			return "", fmt.Errorf("fingerprint %s: %w", pkg, err)
		}
		reached[rel] = d.sum
		pending = append(pending, d.imports...)
	}
	mod, err := os.ReadFile(filepath.Join(f.root, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("fingerprint %s: %w", pkg, err)
	}
	h := sha256.New()
	h.Write(mod)
	for _, rel := range slices.Sorted(maps.Keys(reached)) {
		fmt.Fprintf(h, "%s %s\n", rel, reached[rel])
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

// relative turns an import path into a directory below the root.
func (f *Fingerprints) relative(pkg string) (string, bool) {
	if pkg == f.module {
		return ".", true
	}
	return strings.CutPrefix(pkg, f.module+"/")
}

// directory hashes the files of a directory and those below its testdata. Test files
// are included for every importer: a change of a test file can void a record that is still
// valid, but no record stays valid that should be void.
func (f *Fingerprints) directory(rel string) (directory, error) {
	if d, ok := f.dirs[rel]; ok {
		return d, nil
	}
	dir := filepath.Join(f.root, filepath.FromSlash(rel))
	entries, err := os.ReadDir(dir)
	if err != nil {
		return directory{}, err
	}
	h := sha256.New()
	imports := map[string]bool{}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return directory{}, err
		}
		fmt.Fprintf(h, "%s %x\n", e.Name(), sha256.Sum256(text))
		if !strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), e.Name(), text, parser.ImportsOnly)
		if err != nil {
			return directory{}, fmt.Errorf("%s: %w", rel, err)
		}
		for _, i := range parsed.Imports {
			path, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return directory{}, fmt.Errorf("%s: import %s: %w", rel, i.Path.Value, err)
			}
			if to, ok := f.relative(path); ok {
				imports[to] = true
			}
		}
	}
	if err := hashTree(h, filepath.Join(dir, "testdata")); err != nil {
		return directory{}, err
	}
	d := directory{
		sum:     hex.EncodeToString(h.Sum(nil)),
		imports: slices.Sorted(maps.Keys(imports)),
	}
	f.dirs[rel] = d
	return d, nil
}

// hashTree adds every file below dir; a directory that does not exist adds nothing.
func hashTree(h io.Writer, dir string) error {
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(h, "%s %x\n", strings.TrimPrefix(path, dir), sha256.Sum256(text))
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
