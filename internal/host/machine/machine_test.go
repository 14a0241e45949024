package machine

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"keelson/test/kit/parity"
)

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

// debian has the files of a real machine. Tests remove some of them.
func debian() fstest.MapFS {
	return fstest.MapFS{
		"sys/devices/system/cpu/online": file("0-1\n"),
		"proc/meminfo": file("MemTotal:       24684096 kB\nMemFree:        " +
			"16777792 kB\nMemAvailable:   23972216 kB\nInactive(file):  2669936 kB\nSwapTotal:       1024 kB\n" +
			"HugePages_Total:       0\n"),
		"proc/loadavg":                   file("1.98 2.87 2.01 6/144 8251\n"),
		"proc/sys/kernel/pid_max":        file("32768\n"),
		"proc/sys/kernel/threads-max":    file("192731\n"),
		"proc/sys/kernel/random/boot_id": file("0de2b2b4-1111\n"),
		"proc/sys/kernel/osrelease":      file("6.18.44\n"),
		"etc/machine-id":                 file("3d1219c7c4c5404aaa1f6d2a48adfda4\n"),
		"etc/os-release": file("NAME=\"Debian GNU/Linux\"\n" +
			"PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n"),
		"sys/class/dmi/id/product_uuid":                             file("aaaa-bbbb\n"),
		"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages":     file("3\n"),
		"sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages":  file("0\n"),
		"sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages":   file("1\n"),
		"sys/kernel/mm/hugepages/hugepages-1048576kB/resv_hugepage": file("1\n"),
	}
}

func TestRead(t *testing.T) {
	parity.ProvesPart(t, 4, "NODE-31")
	got, err := Read(debian())
	if err != nil {
		t.Fatal(err)
	}
	if got.CPUs != 2 || got.Memory != 24684096<<10 || got.Swap != 1<<20 || got.MaxPIDs != 32768 ||
		len(got.HugePages) != 2 || got.HugePages[2<<20] != 3 {
		t.Errorf("sizes = %+v", got)
	}
	if s := got.PageSizes(); len(s) != 2 || s[0] != 2<<20 || s[1] != 1<<30 {
		t.Errorf("page sizes = %v", s)
	}
	if got.MachineID != "3d1219c7c4c5404aaa1f6d2a48adfda4" || got.SystemUUID != "aaaa-bbbb" ||
		got.BootID != "0de2b2b4-1111" ||
		got.Kernel != "6.18.44" || got.OSImage != "Debian GNU/Linux 12 (bookworm)" || got.OS != "linux" ||
		got.Arch != runtime.GOARCH {
		t.Errorf("names = %+v", got)
	}
}

// The maximum number of processes is the lower one of the two kernel limits.
func TestReadPIDs(t *testing.T) {
	parity.ProvesPart(t, 5, "RES-13")
	for _, c := range []struct {
		pids, threads string
		want          int64
	}{{"32768", "192731", 32768}, {"4194304", "192731", 192731}, {"", "192731", 192731}, {"32768", "", 32768}} {
		m := debian()
		m["proc/sys/kernel/pid_max"], m["proc/sys/kernel/threads-max"] = file(c.pids), file(c.threads)
		if got, err := Read(m); err != nil || got.MaxPIDs != c.want {
			t.Errorf("pid_max %q and threads-max %q: %d, %v, want %d", c.pids, c.threads, got.MaxPIDs, err, c.want)
		}
	}
}

func TestReadWithMissingFiles(t *testing.T) {
	m := debian()
	for name := range m {
		if strings.HasPrefix(name, "sys/") || strings.HasPrefix(name, "etc/os-release") ||
			strings.HasPrefix(name, "proc/sys") {
			delete(m, name)
		}
	}
	m["proc/cpuinfo"] = file("processor\t: 0\nmodel name\t: User Mode Linux\n\nprocessor\t: 1\n")
	got, err := Read(m)
	if err != nil {
		t.Fatal(err)
	}
	if got.CPUs != 2 || got.OSImage != "Linux" || got.MaxPIDs != 0 || len(got.HugePages) != 0 {
		t.Errorf("a sparse machine = %+v", got)
	}
	if got.SystemUUID != got.MachineID || got.MachineID == "" {
		t.Errorf("without DMI the system UUID = %q, want the machine id", got.SystemUUID)
	}
}

func TestReadDeviceTreeUUID(t *testing.T) {
	m := debian()
	delete(m, "sys/class/dmi/id/product_uuid")
	m["proc/device-tree/vm,uuid"] = file("cccc\x00")
	if got, err := Read(m); err != nil || got.SystemUUID != "cccc" {
		t.Errorf("system UUID = %q, %v", got.SystemUUID, err)
	}
}

func TestReadErrors(t *testing.T) {
	for _, tc := range []struct{ file, text, want string }{
		{"proc/meminfo", "MemFree: 1 kB\n", "MemTotal"},
		{"proc/meminfo", "MemTotal: lots\n", `"lots"`},
		{"sys/devices/system/cpu/online", "3-1", `"3-1"`},
		{"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "x", "hugepages-2048kB"},
	} {
		m := debian()
		m[tc.file] = file(tc.text)
		if _, err := Read(m); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s = %q: error %v does not say %s", tc.file, tc.text, err, tc.want)
		}
	}
}

func TestCountList(t *testing.T) {
	for list, want := range map[string]int{"0": 1, "0-3": 4, "0-1,4,6-7": 5} {
		if got, err := countList(list); err != nil || got != want {
			t.Errorf("countList(%q) = %d, %v, want %d", list, got, err, want)
		}
	}
}

func TestUsage(t *testing.T) {
	mem, err := ReadMemory(debian())
	if err != nil || mem.Available() != (16777792+2669936)<<10 {
		t.Errorf("available = %d, %v", mem.Available(), err)
	}
	if n, err := ReadPIDs(debian()); err != nil || n != 144 {
		t.Errorf("ReadPIDs = %d, %v", n, err)
	}
	if _, err := ReadPIDs(fstest.MapFS{}); err == nil {
		t.Error("processes of a machine without /proc were counted")
	}
}

func TestThisMachine(t *testing.T) {
	got, err := Read(Host())
	if err != nil {
		t.Fatal(err)
	}
	if got.CPUs < 1 || got.Memory < 1<<20 || got.BootID == "" || got.Kernel == "" {
		t.Errorf("this machine = %+v", got)
	}
	fs, err := ReadFilesystem(t.TempDir())
	if err != nil || fs.Capacity == 0 || fs.Available > fs.Capacity {
		t.Errorf("file system = %+v, %v", fs, err)
	}
	if _, err := ReadFilesystem("/nonexistent/x"); err == nil || !strings.Contains(err.Error(), "/nonexistent/x") {
		t.Errorf("error %v does not name the path", err)
	}
	ifs, err := Interfaces()
	if err != nil || len(ifs) == 0 {
		t.Errorf("interfaces = %v, %v", ifs, err)
	}
	if _, err := DefaultRoutes(Host()); err != nil {
		t.Error(err)
	}
}

func FuzzParseMemory(f *testing.F) {
	f.Add("MemTotal:       24684096 kB\nMemFree: 1 kB\n")
	f.Add("MemTotal: 18014398509481984 kB")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := parseMemory(text)
		if err == nil && (m.Total == 0 || m.Available() > m.Total) {
			t.Errorf("%q = %+v", text, m)
		}
	})
}

func TestReadIdleTime(t *testing.T) {
	stat := file("cpu  100 20 30 4000 500 6 7 8 90 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n")
	idle, all, err := ReadIdleTime(fstest.MapFS{"proc/stat": stat})
	if err != nil || idle != 40200*time.Millisecond || all != 46710*time.Millisecond {
		t.Errorf(
			"ReadIdleTime = %v, %v, %v, want 40.2 s of 46.71 s: a processor that waits for a disk is not idle, and "+
				"one that only works in SCHED_IDLE is", idle, all, err)
	}
	if work, err := ReadCPUTime(fstest.MapFS{"proc/stat": stat}); err != nil || work != 1710*time.Millisecond {
		t.Errorf("ReadCPUTime = %v, %v, want 1.71 s", work, err)
	}
	for name, text := range map[string]string{
		"empty":        "",
		"another line": "cpu0 1 2 3 4 5 6 7 8 9 10\n",
		"no number":    "cpu  1 2 3 x 5 6 7 8 9 10\n",
	} {
		if _, _, err := ReadIdleTime(fstest.MapFS{"proc/stat": file(text)}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// The kernel shows eight numbers received and eight sent. Loopback and the host ends of the
// interfaces of containers do not count.
func TestParseTraffic(t *testing.T) {
	parity.ProvesPart(t, 5, "SRV-37")
	got := parseTraffic("Inter-|   Receive                |  Transmit\n" +
		" face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier " +
		"compressed\n" +
		"    lo:     900      9    0    0    0     0          0         0      900      9    0    0    0     0       0    " +
		"      0\n" +
		"  eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n" +
		"veth0a: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n" +
		"docker0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n" +
		"nerdctl0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n" +
		"eth1:17 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n")
	want := []Traffic{
		{
			Name:      "eth0",
			RxBytes:   1,
			RxPackets: 2,
			RxErrors:  3,
			RxDropped: 4,
			TxBytes:   9,
			TxPackets: 10,
			TxErrors:  11,
			TxDropped: 12,
		},
		{Name: "eth1", RxBytes: 17},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
