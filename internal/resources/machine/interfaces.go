package machine

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

// Interface is one network interface with its addresses.
type Interface struct {
	Name     string
	Up       bool
	Loopback bool
	Addrs    []netip.Addr
}

// Interfaces lists the interfaces of the machine.
func Interfaces() ([]Interface, error) {
	list, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	addrs, err := addressesByInterface()
	if err != nil {
		return nil, fmt.Errorf("list addresses of network interfaces: %w", err)
	}
	out := make([]Interface, 0, len(list))
	for _, ifc := range list {
		out = append(out, Interface{Name: ifc.Name, Up: ifc.Flags&net.FlagUp != 0, Loopback: ifc.Flags&net.FlagLoopback != 0, Addrs: addrs[ifc.Index]})
	}
	return out, nil
}

// addressesByInterface asks the kernel for all addresses, by the numbers of their
// interfaces. (*net.Interface).Addrs asks for all of them too, and drops those of
// others: to ask it for one interface after the other takes the square of their
// number, and each pod has one.
func addressesByInterface() (map[int][]netip.Addr, error) {
	table, err := syscall.NetlinkRIB(syscall.RTM_GETADDR, syscall.AF_UNSPEC)
	if err != nil {
		return nil, err
	}
	messages, err := syscall.ParseNetlinkMessage(table)
	if err != nil {
		return nil, err
	}
	out := map[int][]netip.Addr{}
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
			index := int(binary.NativeEndian.Uint32(m.Data[4:])) // ifa_index
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
