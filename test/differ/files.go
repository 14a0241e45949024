package differ

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// trees are the files below the pod's directory on each side.
func (p *play) trees(l *Life) (trees [2]flat, err error) {
	for i, s := range p.sides {
		if trees[i], err = s.files(l); err != nil {
			return trees, err
		}
	}
	return trees, nil
}

// filesUnlike reports whether files differ that both sides are expected to have.
func (p *play) filesUnlike(l *Life) bool {
	if !p.settled(l) {
		return false
	}
	trees, err := p.trees(l)
	scene := p.scene(l)
	return err == nil && slices.ContainsFunc(unlike(trees[0], trees[1]), func(path string) bool {
		return ruleFor(Difference{
			Kind:   "file",
			Where:  path,
			Ours:   trees[0].at(path),
			Theirs: trees[1].at(path),
			Life:   l,
			scene:  scene,
		}) == nil
	})
}

// alsoFile separates the descriptions of files whose names are random, and therefore normalised to the same path.
const alsoFile = " and "

// files are the files below a pod's directory: kind, mode, owner and content by path.
func (s *side) files(l *Life) (flat, error) {
	uids := s.record.track(l.Name).knownUIDs()
	out := flat{}
	if len(uids) == 0 {
		return out, nil
	}
	found := map[string][]string{} // by path; several files if their names are random
	top := s.podDir(uids[len(uids)-1])
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was removed meanwhile
		}
		if err != nil {
			return err
		}
		what, err := describeFile(path, d)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(top, path)
		if err != nil {
			return err
		}
		at := s.normal(rel, uids)
		found[at] = append(found[at], s.normal(what, uids))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("compare files of %s: %w", l.Name, err)
	}
	for at, list := range found {
		slices.Sort(list)
		out[at] = strings.Join(list, alsoFile)
	}
	return out, nil
}

func describeFile(path string, d fs.DirEntry) (string, error) {
	info, err := d.Info()
	if err != nil {
		return "", err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", fmt.Errorf("no owner of %s", path)
	}
	what := fmt.Sprintf("%v owner %d:%d", info.Mode(), st.Uid, st.Gid)
	switch {
	case info.Mode().IsRegular():
		data, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		what += " content " + string(data[:min(len(data), 4096)])
	case info.Mode()&fs.ModeSymlink != 0:
		to, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		what += " to " + to
	}
	return what, nil
}
