package checkpoint

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"keelson/test/kit/parity"
)

// TestDeviceCheckpointMatchesUpstream decodes checkpoints that upstream's agent has written, and encodes them again to
// the same bytes.
func TestDeviceCheckpointMatchesUpstream(t *testing.T) {
	parity.ProvesPart(t, 2, "RES-51")
	for name, want := range map[string]int{"devices.json": 4, "devices-none.json": 0} {
		content, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		held, there, err := DecodeDevices(content)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(held) != want || len(there) != 2 || len(there["example.com/a"]) != 3 {
			t.Errorf("%s: %v, %v", name, held, there)
		}
		again, err := EncodeDevices(held, there)
		if err != nil || !bytes.Equal(again, content) {
			t.Errorf("%s: written again as\n%s\n%v", name, again, err)
		}
		for _, spoilt := range [][]byte{
			content[:len(content)/2],
			bytes.Replace(content, []byte("a1"), []byte("a9"), 1),
			nil,
			[]byte("{}"),
			[]byte("[]"),
		} {
			if held, there, err := DecodeDevices(spoilt); err == nil {
				t.Errorf("%q was taken for %v, %v", spoilt, held, there)
			}
		}
	}
}

func FuzzDevices(f *testing.F) {
	for _, name := range []string{"devices.json", "devices-none.json"} {
		content, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		held, there, err := DecodeDevices(content)
		if err != nil {
			return
		}
		text, err := EncodeDevices(held, there)
		if err != nil {
			t.Fatal(err)
		}
		held2, there2, err := DecodeDevices(text)
		if err != nil || !reflect.DeepEqual(held, held2) || !reflect.DeepEqual(there, there2) {
			t.Errorf("%v, %v became %v, %v: %v", held, there, held2, there2, err)
		}
	})
}
