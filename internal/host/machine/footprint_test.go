package machine

import (
	"bufio"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestReadOnlySpans(t *testing.T) {
	const text = `00400000-0138e000 r-xp 00000000 fe:00 42                                 /usr/bin/kubelet
Size:              15928 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
0138e000-02400000 r--p 00f8e000 fe:00 42                                 /usr/bin/kubelet
Anonymous:             0 kB
02400000-02490000 r--p 01fff000 fe:00 42                                 /usr/bin/kubelet
Anonymous:             8 kB
02490000-02500000 rw-p 02000000 fe:00 42                                 /usr/bin/kubelet
Anonymous:             0 kB
c000000000-c000800000 rw-p 00000000 00:00 0 
Anonymous:          8192 kB
7f0000000000-7f0000001000 r--p 00000000 fe:00 43                         /usr/bin/other program
Anonymous:             0 kB
`
	got, err := readOnlySpans(bufio.NewScanner(strings.NewReader(text)), "/usr/bin/kubelet")
	want := []span{{0x400000, 0x138e000}, {0x138e000, 0x2400000}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%x, %v; want %x: not what is written, changed, or another's", got, err, want)
	}
	if _, err := readOnlySpans(bufio.NewScanner(strings.NewReader("garbage\n")), "/usr/bin/kubelet"); err == nil {
		t.Error("garbage is taken for a map")
	}
}

func TestForgetProgram(t *testing.T) {
	mapped := func() int {
		data, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(data), "RssFile:")
		n, err := strconv.Atoi(strings.Fields(rest)[0])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := mapped()
	if err := ForgetProgram(); err != nil {
		t.Fatal(err)
	}
	if after := mapped(); after >= before {
		t.Errorf("%d kB of files before, %d kB after", before, after)
	}
}
