package server

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// systemLogs serves the files in the log directory of the node. Links that lead outside of it are not followed, because
// containers write in this directory and could make such links.
func (s *Server) systemLogs() http.HandlerFunc {
	if !s.cfg.SystemLogHandler {
		return disabled(textLogsDisabled)
	}
	if s.cfg.SystemLogDir == "" {
		return nil
	}
	return func(w http.ResponseWriter, r *http.Request) {
		root, err := os.OpenRoot(s.cfg.SystemLogDir)
		if err != nil {
			writeText(w, http.StatusInternalServerError, err.Error())
			return
		}
		defer root.Close()
		tree := &logTree{root: root, dir: s.cfg.SystemLogDir}
		files := http.StripPrefix("/logs", http.FileServerFS(tree))
		if s.cfg.SystemLogQuery {
			s.logQueryHandler(tree, files)(w, r)
			return
		}
		files.ServeHTTP(w, r)
	}
}

// logTree is a directory tree. Absolute links are followed if they stay in the tree, as those of /var/log/containers
// do.
type logTree struct {
	root *os.Root
	dir  string
}

// Open resolves links and then opens the result through the root, which does not leave the tree even if a link is
// replaced in between.
func (t *logTree) Open(name string) (fs.File, error) {
	if f, err := t.open(name); err == nil || errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	whole, err := filepath.EvalSymlinks(filepath.Join(t.dir, filepath.FromSlash(name)))
	if err != nil {
		return nil, err
	}
	dir, err := filepath.EvalSymlinks(t.dir)
	if err != nil {
		return nil, err
	}
	rel, err := filepath.Rel(dir, whole)
	if err != nil || !filepath.IsLocal(rel) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return t.open(rel)
}

// stat returns an error if a file cannot be read.
func (t *logTree) stat(name string) error {
	_, err := t.root.Stat(filepath.FromSlash(strings.ReplaceAll(name, `\`, "/")))
	return err
}

// open opens a regular file or directory. Named pipes and devices are not served: opening them could block the request.
func (t *logTree) open(name string) (fs.File, error) {
	f, err := t.root.OpenFile(strings.TrimSuffix(name, "/"), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		err = &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
