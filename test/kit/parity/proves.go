package parity

import (
	"os"
	"runtime"
	"strings"
	"testing"

	inventory "keelson/docs/parity"
)

// Env names the variable that holds the directory of the records.
const Env = "KEELSON_PARITY_DIR"

// Proves states that t would fail if the contract of one of the rows were
// broken. It fails t at once when a row does not exist. Call it first in the
// test: only then does the record also wait for every other cleanup.
func Proves(t testing.TB, rows ...string) {
	t.Helper()
	for _, row := range rows {
		if _, ok := inventory.Lookup(row); !ok {
			t.Fatalf("parity row %s is not in docs/parity", row)
		}
	}
	dir := os.Getenv(Env)
	if dir == "" {
		return
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatalf("create the directory of parity records: %v", err)
	}
	pkg := callerPackage()
	for _, row := range rows {
		rec := Record{Row: row, Package: pkg, Test: t.Name()}
		if err := rec.remove(dir); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if t.Failed() || t.Skipped() {
				return
			}
			if err := rec.write(dir); err != nil {
				t.Error(err)
			}
		})
	}
}

// callerPackage is the import path of the package that called Proves. An
// external test package counts as the package it tests.
func callerPackage() string {
	pc, _, _, ok := runtime.Caller(2)
	if !ok {
		return ""
	}
	return packageOf(runtime.FuncForPC(pc).Name())
}

// packageOf cuts keelson/internal/pods/pod_test.TestX.func1 to
// keelson/internal/pods/pod.
func packageOf(function string) string {
	slash := strings.LastIndexByte(function, '/')
	name, _, _ := strings.Cut(function[slash+1:], ".")
	return function[:slash+1] + strings.TrimSuffix(name, "_test")
}
