package main

import (
	"strings"
	"testing"
)

func TestPrintResult(t *testing.T) {
	it := func(name, state, message string) spec {
		s := spec{
			ContainerHierarchyTexts: []string{"[sig-node] Pods"},
			LeafNodeText:            name,
			LeafNodeType:            "It",
			State:                   state,
		}
		s.Failure.Message = message
		return s
	}
	res := sortOut([]report{{SpecReports: []spec{
		it("runs", "passed", ""),
		it("breaks", "failed", "expected 1\n  got 2"),
		it("hangs", "timedout", "too long"),
		it("needs a cloud", "skipped", "only for providers"),
		it("of no interest", "skipped", ""),
		{LeafNodeType: "SynchronizedBeforeSuite", State: "failed"},
	}}})
	var out strings.Builder
	if err := res.print(&out, ""); err != nil {
		t.Fatal(err)
	}
	want := `FAILED [sig-node] Pods breaks
       failed: expected 1 got 2
FAILED [sig-node] Pods hangs
       timedout: too long
SUITE SynchronizedBeforeSuite failed: 
1 passed, 2 failed, 1 skipped
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
