package machine

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"keelson/test/kit/need"
)

// inOwnNetwork runs f in a new network namespace with n interfaces that have addresses of both
// families, and a point-to-point address.
func inOwnNetwork(t *testing.T, n int, f func()) {
	t.Helper()
	need.Root(t, "a network namespace")
	ip, err := exec.LookPath("ip")
	if err != nil {
		need.Skip(t, "this machine has no ip command")
	}
	done := make(chan struct{})
	go func() { // its thread ends with it, and the network namespace with the thread
		defer close(done)
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Errorf("make a network: %v", err)
			return
		}
		batch := "address add 192.0.2.1 peer 192.0.2.2 dev lo\nlink add bare type veth peer name nobare\n"
		for i := range n / 2 {
			batch += fmt.Sprintf("link add a%d type veth peer name b%d\n", i, i)
			for j, end := range []string{"a", "b"} {
				batch += fmt.Sprintf("address add 10.%d.%d.1/24 dev %s%d\naddress add fd00:%d:%x::1/64 dev %s%d\n",
					j, i, end, i, j, i, end, i)
			}
			batch += fmt.Sprintf("link set a%d up\n", i)
		}
		cmd := exec.Command(ip, "-batch", "-") // in the network namespace of this thread
		cmd.Stdin = strings.NewReader(batch)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("make interfaces: %v\n%s", err, out)
			return
		}
		f()
	}()
	<-done
}

func TestInterfaces(t *testing.T) {
	inOwnNetwork(t, 4, func() {
		list, err := net.Interfaces()
		if err != nil {
			t.Error(err)
			return
		}
		var want []Interface
		for _, ifc := range list {
			i := Interface{Name: ifc.Name, Up: ifc.Flags&net.FlagUp != 0, Loopback: ifc.Name == "lo"}
			addrs, err := ifc.Addrs()
			if err != nil {
				t.Error(err)
			}
			for _, a := range addrs {
				i.Addrs = append(i.Addrs, netip.MustParsePrefix(a.String()).Addr())
			}
			if len(i.Addrs) > 0 {
				want = append(want, i)
			}
		}
		got, err := Interfaces()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("Interfaces = %v, %v\nwant %v", got, err, want)
		}
		if len(want) != 5 || len(want[0].Addrs) == 0 {
			t.Errorf("seen %v, want five interfaces with addresses", want)
		}
	})
}

// TestInterfacesCost: the memory for the call is linear in the number of interfaces, not quadratic.
func TestInterfacesCost(t *testing.T) {
	cost := func(n int) (bytes uint64) {
		inOwnNetwork(t, n, func() {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if _, err := Interfaces(); err != nil {
				t.Error(err)
			}
			runtime.ReadMemStats(&after)
			bytes = after.TotalAlloc - before.TotalAlloc
		})
		return bytes
	}
	few, many := cost(12), cost(120)
	t.Logf("12 interfaces take %d kB, 120 take %d kB", few/1000, many/1000)
	if many > 20*few {
		t.Errorf("12 interfaces take %d bytes, 120 take %d", few, many)
	}
}
