package rules

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// unguarded are the functions that start goroutines or timers in which a panic ends the agent, by file, with the
// reason.
var unguarded = map[string]string{
	// Parts that serve the whole node: by decision 0136, their panics end the agent.
	"internal/app/group.go start":                             "it recovers itself, names the part, and ends the agent",
	"internal/host/setup/lock.go HoldLock":                    "the lock of the root directory is the agent's own",
	"internal/api/identity/rotator.go Run":                    "without a certificate no pod is served",
	"internal/api/identity/rotator.go untilTemplateChanges":   "a step of renewing the node's certificate",
	"internal/host/logind/session.go Delay":                   "the lock that delays a shutdown of the machine",
	"internal/host/logind/session.go Dial":                    "the connection by which shutdowns are announced",
	"internal/api/node/node.go Run":                           "the loops that keep the Node object and the lease",
	"internal/api/node/cachedcall.go get":                     "a fact for the status of the node",
	"internal/serve/server/server.go Run":                     "the listeners; net/http contains panics of handlers",
	"internal/serve/server/server.go serveOn":                 "a listener; net/http contains panics of handlers",
	"internal/host/shutdown/watcher.go begin":                 "the shutdown of the whole machine",
	"internal/pods/desired/store.go Run":                      "the sources that all pods come from",
	"internal/pods/observed/watch.go Run":                     "the event stream of the runtime, for all pods",
	"internal/pods/observed/watch.go relist":                  "the first list of the runtime, for all pods",
	"internal/resources/eviction/manager.go Run":              "the two loops; each candidate is contained in them",
	"internal/runtime/container/idleprobe.go probeIdleLocked": "how many calls the runtime is sent at once",
	"internal/runtime/container/idleprobe.go probeIdle":       "how many calls the runtime is sent at once",
	"internal/runtime/container/callqueue.go grantLocked":     "the queue in which all calls to the runtime wait",

	// The functions that they run contain panics themselves.
	"internal/pods/podsync/syncer.go withWorker":     "the worker of a pod contains each turn",
	"internal/pods/podsync/tasks.go spawn":           "runner.run contains the step and what reads its effect",
	"internal/resources/dra/drivers.go followLocked": "it waits for two goroutines that are contained",
	"internal/storage/volume/ownership.go report":    "mount.Guard contains the walk, the attempt reports it",

	// They call one function of a library, or cancel a context.
	"internal/pods/panics/timer.go After":                     "this is the contained start itself",
	"internal/pods/panics/timer.go Again":                     "this is the contained start itself",
	"internal/serve/server/upgrade.go join":                   "it copies bytes between two connections, and closes them",
	"internal/runtime/container/prestop.go begin":             "the timer cancels the context of a hook",
	"internal/runtime/cri/change.go Run":                      "the timer cancels the context of all calls",
	"internal/storage/mount/tools.go runLong":                 "it resets the timer of an attempt at a volume",
	"internal/storage/volume/progress.go withProgressTimeout": "the timer cancels the context of an attempt",
}

// Starts returns a message for each goroutine and timer below a directory that does not contain panics. The started
// function contains them if it calls package panics, or a function of the same package that does so, directly or
// through one further function. The names in unguarded are relative to root.
func Starts(root, dir string) (violations []string, used map[string]bool, err error) {
	used = map[string]bool{}
	err = filepath.WalkDir(filepath.Join(root, dir), func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		found, err := startsIn(root, path, used)
		violations = append(violations, found...)
		return err
	})
	slices.Sort(violations)
	return violations, used, err
}

func startsIn(root, dir string, used map[string]bool) ([]string, error) {
	fset := token.NewFileSet()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	var parsed []*ast.File
	guards := map[string]bool{} // functions and methods of the package that call package panics
	bodies := map[string]*ast.BlockStmt{}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("read starts of goroutines: %w", err)
		}
		parsed = append(parsed, f)
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			bodies[fn.Name.Name] = fn.Body
			if callsAny(fn.Body, isPanics) {
				guards[fn.Name.Name] = true
			}
		}
	}
	isGuard := func(f ast.Expr) bool { return guards[nameOf(f)] }
	guarded := func(n ast.Node) bool {
		return callsAny(n, isPanics) || callsAny(n, isGuard) ||
			callsAny(n,
				func(f ast.Expr) bool { return bodies[nameOf(f)] != nil && callsAny(bodies[nameOf(f)], isGuard) })
	}
	var out []string
	for _, f := range parsed {
		name, err := filepath.Rel(root, fset.Position(f.Pos()).Filename)
		if err != nil {
			return nil, err
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			for _, start := range startsOf(fn.Body) {
				key := filepath.ToSlash(name) + " " + fn.Name.Name
				if _, listed := unguarded[key]; listed {
					used[key] = true
				} else if !guarded(start) {
					out = append(out, fmt.Sprintf("%s starts work whose panic ends the agent: start it with "+
						"package panics, or say in test/rules why the agent cannot do without it", key))
				}
			}
		}
	}
	return out, nil
}

// startsOf returns the functions that goroutines and timers in a body run.
func startsOf(body ast.Node) []ast.Node {
	var out []ast.Node
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			out = append(out, n.Call)
		case *ast.CallExpr:
			f, ok := n.Fun.(*ast.SelectorExpr)
			switch {
			case !ok:
			case f.Sel.Name == "AfterFunc" && nameOf(f.X) == "time" && len(n.Args) == 2:
				out = append(out, asCall(n.Args[1]))
			case f.Sel.Name == "Go" && len(n.Args) == 1: // of a WaitGroup, or an errgroup
				out = append(out, asCall(n.Args[0]))
			}
		}
		return true
	})
	return out
}

// asCall returns the code of a function argument: the body of a literal, or a call of a named function.
func asCall(f ast.Expr) ast.Node {
	if lit, ok := f.(*ast.FuncLit); ok {
		return lit.Body
	}
	return &ast.CallExpr{Fun: f}
}

// callsAny reports whether a node calls a function that match accepts.
func callsAny(n ast.Node, match func(ast.Expr) bool) bool {
	found := false
	ast.Inspect(n, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && match(call.Fun) {
			found = true
		}
		return !found
	})
	return found
}

// isPanics reports whether a function belongs to package panics.
func isPanics(f ast.Expr) bool {
	sel, ok := f.(*ast.SelectorExpr)
	return ok && nameOf(sel.X) == "panics"
}

// nameOf returns the last name of an expression.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}
