package machine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// Interface is a network interface with its addresses.
type Interface struct {
	Name     string
	Up       bool
	Loopback bool
	Addrs    []netip.Addr
}

// Interfaces returns the interfaces of the machine with an address.
func Interfaces() ([]Interface, error) {
	addrs, err := addressesByInterface()
	if err != nil {
		return nil, fmt.Errorf("list addresses of network interfaces: %w", err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	defer unix.Close(fd)
	out := make([]Interface, 0, len(addrs))
	for _, index := range slices.Sorted(maps.Keys(addrs)) {
		i, err := describeInterface(fd, index)
		if errors.Is(err, unix.ENODEV) {
			continue // removed in the meantime
		}
		if err != nil {
			return nil, fmt.Errorf("read network interface %d: %w", index, err)
		}
		i.Addrs = addrs[index]
		out = append(out, i)
	}
	return out, nil
}

// describeInterface returns the name and flags of an interface. Listing all interfaces would also return their counters
// and settings.
func describeInterface(fd int, index uint32) (Interface, error) {
	r := &unix.Ifreq{}
	r.SetUint32(index)
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFNAME, r); err != nil {
		return Interface{}, err
	}
	i := Interface{Name: r.Name()}
	err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, r)
	flags := r.Uint16()
	i.Up, i.Loopback = flags&unix.IFF_UP != 0, flags&unix.IFF_LOOPBACK != 0
	return i, err
}

// addressesByInterface returns all addresses by the index of their interface. (*net.Interface).Addrs also reads all
// addresses and filters them, so that its use for each interface would take quadratic time, and each pod has an
// interface.
func addressesByInterface() (map[uint32][]netip.Addr, error) {
	table, err := syscall.NetlinkRIB(syscall.RTM_GETADDR, syscall.AF_UNSPEC)
	if err != nil {
		return nil, err
	}
	messages, err := syscall.ParseNetlinkMessage(table)
	if err != nil {
		return nil, err
	}
	out := map[uint32][]netip.Addr{}
	for i := range messages {
		m := &messages[i]
		if m.Header.Type != syscall.RTM_NEWADDR || len(m.Data) < syscall.SizeofIfAddrmsg {
			continue
		}
		attrs, err := syscall.ParseNetlinkRouteAttr(m)
		if err != nil {
			return nil, err
		}
		if addr, ok := ownAddress(attrs); ok {
			index := binary.NativeEndian.Uint32(m.Data[4:]) // ifa_index
			out[index] = append(out[index], addr)
		}
	}
	return out, nil
}

// ownAddress returns the interface's own address from the attributes: the local one of a point-to-point link, or else
// the only one.
func ownAddress(attrs []syscall.NetlinkRouteAttr) (addr netip.Addr, ok bool) {
	for _, a := range attrs {
		switch a.Attr.Type {
		case syscall.IFA_LOCAL:
			addr, ok = netip.AddrFromSlice(a.Value)
			return addr.Unmap(), ok
		case syscall.IFA_ADDRESS:
			addr, ok = netip.AddrFromSlice(a.Value)
		}
	}
	return addr.Unmap(), ok
}
