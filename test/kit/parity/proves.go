package parity

import (
	"os"
	"runtime"
	"strings"
	"testing"

	"keelson/docs/decisions"
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
		claim(t, Record{Row: row})
	}
}

// ProvesPart states that t would fail if its part of the row's contract were
// broken, and that n tests prove the row together. All of them pass the same n;
// the row is proven when n different tests have passed.
func ProvesPart(t testing.TB, n int, row string) {
	t.Helper()
	if n < 2 {
		t.Fatalf("parity row %s is proven by %d tests together: a row of one test is claimed with Proves", row, n)
	}
	claim(t, Record{Row: row, Parts: n})
}

// Differs states that the agent differs from the row on purpose, by the decision of
// this number in docs/decisions, and that t would fail if the agent did not do what the
// decision states instead.
func Differs(t testing.TB, row, decision string) {
	t.Helper()
	if _, ok := decisions.Title(decision); !ok {
		t.Fatalf("decision %s, by which the agent differs from parity row %s, is not in docs/decisions", decision, row)
	}
	claim(t, Record{Row: row, Decision: decision})
}

// claim writes the record when t has passed or skipped. The functions that tests call call it.
func claim(t testing.TB, rec Record) {
	t.Helper()
	if _, ok := inventory.Lookup(rec.Row); !ok {
		t.Fatalf("parity row %s is not in docs/parity", rec.Row)
	}
	dir := os.Getenv(Env)
	if dir == "" {
		return
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatalf("create the directory of parity records: %v", err)
	}
	rec.Package, rec.Test = callerPackage(), t.Name()
	if err := rec.remove(dir); err != nil {
		t.Fatal(err)
	}
	code, err := tested(rec.Package)
	if err != nil {
		t.Fatal(err)
	}
	rec.Commit, rec.Fingerprint = code.commit, code.fingerprint
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		rec.Skipped = t.Skipped()
		if err := rec.write(dir); err != nil {
			t.Error(err)
		}
	})
}

// callerPackage is the import path of the package whose test makes a claim. An
// external test package counts as the package it tests.
func callerPackage() string {
	pc, _, _, ok := runtime.Caller(3)
	if !ok {
		return ""
	}
	return packageOf(runtime.FuncForPC(pc).Name())
}

// packageOf shortens keelson/internal/pods/pod_test.TestX.func1 to
// keelson/internal/pods/pod.
func packageOf(function string) string {
	slash := strings.LastIndexByte(function, '/')
	name, _, _ := strings.Cut(function[slash+1:], ".")
	return function[:slash+1] + strings.TrimSuffix(name, "_test")
}
