package dra

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"keelson/test/kit/parity"
)

// Checkpoints of upstream's agent are decoded, and encoded again to the same bytes.
func TestClaimCheckpointMatchesUpstream(t *testing.T) {
	parity.Proves(t, "RES-61")
	for name, want := range map[string]int{"claims-none.json": 0, "claims-pending.json": 1, "claims.json": 2} {
		content, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		list, err := decodeClaims(content)
		if err != nil || len(list) != want {
			t.Fatalf("%s: %d claims, %v", name, len(list), err)
		}
		if again, err := encodeClaims(list); err != nil || !bytes.Equal(again, content) {
			t.Errorf("%s is written as\n%s, %v\nupstream's:\n%s", name, again, err, content)
		}
		for _, damage := range []func(string) string{
			func(s string) string { return s[:len(s)/2] },
			func(s string) string { return strings.Replace(s, "DRACheckpoint", "DRACheckpaint", 1) },
			func(s string) string { return strings.Replace(s, `"Checksum":`, `"Checksum":1`, 1) },
		} {
			if list, err := decodeClaims([]byte(damage(string(content)))); err == nil {
				t.Errorf("%s, damaged, says %v", name, list)
			}
		}
	}
}

func FuzzDecodeClaims(f *testing.F) {
	for _, name := range []string{"claims-none.json", "claims-pending.json", "claims.json"} {
		content, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		list, err := decodeClaims(content)
		if err != nil {
			return
		}
		if _, err := encodeClaims(list); err != nil {
			t.Errorf("what was read cannot be written: %v", err)
		}
	})
}
