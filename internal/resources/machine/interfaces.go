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

// Interface is one network interface with its addresses.
type Interface struct {
	Name     string
	Up       bool
	Loopback bool
	Addrs    []netip.Addr
}

// Interfaces lists the interfaces of the machine that have an address.
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
			continue // it is gone since
		}
		if err != nil {
			return nil, fmt.Errorf("read network interface %d: %w", index, err)
		}
		i.Addrs = addrs[index]
		out = append(out, i)
	}
	return out, nil
}

// describeInterface tells what an interface is called and whether it is up. To list
// all of them would bring what each has carried, and a hundred settings.
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

// addressesByInterface asks the kernel for all addresses, by the numbers of their
// interfaces. (*net.Interface).Addrs asks for all of them too, and drops those of
// others: to ask it for one interface after the other takes the square of their
// number, and each pod has one.
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

// ownAddress is the interface's own one of what the kernel tells of an address:
// between two ends the local one, where else there is one only.
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
