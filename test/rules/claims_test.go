package rules

import (
	"os"
	"slices"
	"testing"
	"testing/fstest"
)

func TestClaimsOfRowsAddUp(t *testing.T) {
	violations, read, err := Claims(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	if read < 500 {
		t.Errorf("%d files were read", read)
	}
	report(t, violations)
}

func TestClaimsCatches(t *testing.T) {
	test := func(body string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte("package a\n" + body)}
	}
	got, read, err := Claims(fstest.MapFS{
		"a/a_test.go": test(`func TestA(t *testing.T) {
	parity.ProvesPart(t, 2, "X-1")
	parity.ProvesPart(t, 3, "X-2")
	parity.Proves(t, "X-3", "X-4")
}
func TestB(t *testing.T) {
	t.Run("b", func(t *testing.T) { parity.ProvesPart(t, 2, "X-1") })
	parity.Differs(t, "X-4", "0001")
}`),
		"a/a.go":           test(`func f() { parity.ProvesPart(t, 7, "X-7") }`),
		"s/testdata/s.txt": {Data: []byte("# A story.\npart: 3 X-2\nrows: X-3 X-5\n\nstart\npart: 9 X-9\n")},
		"s/testdata/d.txt": {Data: []byte("differs: X-6 0002\n\nstart\n")},
	})
	if err != nil || read != 3 {
		t.Fatalf("%d files were read, %v", read, err)
	}
	want := []string{
		"X-2 is proven by 3 tests together, and 2 say so: a.TestA, s/testdata/s.txt",
		"X-4 is claimed in 2 ways: whole by [a.TestA], in parts by map[], as differing by [a.TestB]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("caught %q, want %q", got, want)
	}
}
