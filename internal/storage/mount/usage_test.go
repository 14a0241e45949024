package mount

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/moby/sys/mountinfo"

	"keelson/test/kit/need"
	"keelson/test/kit/parity"
)

func TestUsageOfTreeMatchesDu(t *testing.T) {
	dir := room(t)
	tree := mkdir(t, dir, "tree")
	grow(t, tree, 7)
	write(t, filepath.Join(tree, "big"), strings.Repeat("x", 100_000))
	must(t, os.Link(filepath.Join(tree, "big"), filepath.Join(tree, "twice")))
	f, err := os.Create(filepath.Join(tree, "sparse"))
	must(t, err)
	must(t, f.Truncate(1<<30))
	must(t, f.Close())
	other := mkdir(t, tree, "other")
	must(t, Tmpfs(other, 1<<20))
	write(t, filepath.Join(other, "not counted"), strings.Repeat("x", 300_000))
	u, err := UsageOfTree(t.Context(), tree)
	must(t, err)
	for _, want := range []struct {
		flag string
		have uint64
	}{{"--block-size=1", u.Used}, {"--inodes", u.InodesUsed}} {
		out, err := exec.Command("du", "-x", "-s", want.flag, tree).Output()
		must(t, err)
		if got := fmt.Sprintf("%d\t%s\n", want.have, tree); got != string(out) {
			t.Errorf("du %s says %q, we %q", want.flag, out, got)
		}
	}
	var st unix.Statfs_t
	must(t, unix.Statfs(tree, &st))
	if u.Capacity != st.Blocks*uint64(st.Bsize) || u.Inodes != st.Files || u.Available == 0 {
		t.Errorf("usage = %+v, the file system's %+v", u, st)
	}
	if u, err := UsageOfFilesystem(other); err != nil || u.Capacity != 1<<20 || u.Used < 300_000 || u.InodesUsed != 2 {
		t.Errorf("usage of a file system = %+v, %v", u, err)
	}
	if _, err := UsageOfTree(t.Context(), filepath.Join(dir, "none")); err == nil {
		t.Error("nothing has a usage")
	}
}

// TestNoSwapByVersion: tmpfs supports noswap since Linux 6.4, outside of user namespaces.
func TestNoSwapByVersion(t *testing.T) {
	parity.ProvesPart(t, 3, "VOL-38")
	var u unix.Utsname
	must(t, unix.Uname(&u))
	var major, minor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	users, err := os.ReadFile("/proc/self/uid_map")
	must(t, err)
	if strings.Join(strings.Fields(string(users)), " ") != "0 0 4294967295" || os.Geteuid() != 0 {
		need.Skip(t, "only root of the initial user namespace can use the option")
	}
	if want := major > 6 || major == 6 && minor >= 4; NoSwap() != want {
		t.Errorf("NoSwap = %v of Linux %d.%d, want %v", NoSwap(), major, minor, want)
	}
}

func TestSwapOn(t *testing.T) {
	parity.ProvesPart(t, 3, "VOL-38")
	has := NoSwap
	defer func() { NoSwap = has }()
	const head = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
	dir := t.TempDir()
	for text, want := range map[string]bool{head: false, head + "/dev/sda2  partition\t1048572\t0\t-2\n": true} {
		list := filepath.Join(dir, "swaps")
		write(t, list, text)
		if on, err := swapOn(list); err != nil || on != want {
			t.Errorf("swapOn = %v, %v of %q", on, err, text)
		}
		for _, option := range []bool{true, false} {
			NoSwap = func() bool { return option }
			if may, err := maySwap(list); err != nil || may != (want && !option) {
				t.Errorf("maySwap = %v, %v of %q with the option %v", may, err, text, option)
			}
		}
	}
	if on, err := swapOn(filepath.Join(dir, "none")); err != nil || on {
		t.Errorf("swapOn = %v, %v of a kernel without swap", on, err)
	}
}

func TestHasLabels(t *testing.T) {
	const table = `36 35 98:0 / /a rw,noatime master:1 - ext4 /dev/sda rw,seclabel,errors=continue
37 35 0:50 / /b rw - nfs4 srv:/x rw,vers=4.2
38 35 0:51 / /c rw,seclabel - tmpfs x rw,notseclabel
39 35 0:52 / /c rw - xfs /dev/sdb rw,seclabel
40 35 0:53 / /d rw - xfs /dev/sdc rw,seclabel
41 35 0:54 / /d rw - xfs /dev/sdc rw,context=system_u:object_r:container_file_t:s0
`
	for path, want := range map[string]bool{"/a": true, "/b": false, "/c": true, "/d": false, "/e": false} {
		at, err := mountinfo.GetMountsFromReader(strings.NewReader(table), allAt(path))
		if got := labelled(at); err != nil || got != want {
			t.Errorf("%s: %v, %v", path, got, err)
		}
	}
}
