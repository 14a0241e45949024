package machine

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
)

// AddressInput is the input of Addresses.
type AddressInput struct {
	NodeIPs    []netip.Addr // as configured; an unspecified address selects a family only
	Name       string       // of the node
	Interfaces []Interface
	Routes     []Route // default routes, best first
	// Lookup resolves the name. Nil: it is not resolved.
	Lookup func(context.Context, string) ([]netip.Addr, error)
}

// Addresses returns one or two addresses of the node: the configured ones, or the name if it is an address, or what the
// name resolves to, or an address of the interface of the default route. IPv4 is preferred unless the configuration
// selects IPv6.
func Addresses(ctx context.Context, in AddressInput) ([]netip.Addr, error) {
	want6 := false
	if len(in.NodeIPs) > 0 {
		if !in.NodeIPs[0].IsUnspecified() {
			for _, ip := range in.NodeIPs {
				if err := CheckNodeIP(ip, in.Interfaces); err != nil {
					return nil, fmt.Errorf("use node IP %s: %w", ip, err)
				}
			}
			return in.NodeIPs, nil
		}
		want6 = in.NodeIPs[0].Is6()
	}
	if ip, err := netip.ParseAddr(in.Name); err == nil {
		return []netip.Addr{ip}, nil
	}
	var lookupErr error
	if in.Lookup != nil {
		var found []netip.Addr
		if found, lookupErr = in.Lookup(ctx, in.Name); lookupErr == nil {
			if ip, ok := preferred(found, in.Interfaces, want6); ok {
				return []netip.Addr{ip}, nil
			}
		}
	}
	if ip, ok := routed(in.Interfaces, in.Routes, want6); ok {
		return []netip.Addr{ip}, nil
	}
	return nil, errors.Join(fmt.Errorf("choose address of node %s: no interface with a default route has a global "+
		"address", in.Name), lookupErr)
}

// preferred returns the first valid address of the wanted family, or else the first valid one.
func preferred(found []netip.Addr, ifs []Interface, want6 bool) (netip.Addr, bool) {
	var best netip.Addr
	for _, ip := range found {
		ip = ip.Unmap()
		if CheckNodeIP(ip, ifs) != nil {
			continue
		}
		if ip.Is6() == want6 {
			return ip, true
		}
		if !best.IsValid() {
			best = ip
		}
	}
	return best, best.IsValid()
}

// routed returns a global address of the interface of a default route.
func routed(ifs []Interface, routes []Route, want6 bool) (netip.Addr, bool) {
	for _, six := range []bool{want6, !want6} {
		for _, r := range routes {
			if r.IPv6 != six {
				continue
			}
			for _, i := range ifs {
				if i.Name != r.Interface || !i.Up {
					continue
				}
				for _, ip := range i.Addrs {
					if ip.Is6() == six && ip.IsGlobalUnicast() {
						return ip, true
					}
				}
			}
		}
	}
	return netip.Addr{}, false
}

// CheckNodeIP returns an error if the address cannot be the node's.
func CheckNodeIP(ip netip.Addr, ifs []Interface) error {
	switch {
	case ip.IsLoopback():
		return errors.New("nodeIP can't be loopback address")
	case ip.IsMulticast():
		return errors.New("nodeIP can't be a multicast address")
	case ip.IsLinkLocalUnicast():
		return errors.New("nodeIP can't be a link-local unicast address")
	case ip.IsUnspecified():
		return errors.New("nodeIP can't be an all zeros address")
	}
	for _, i := range ifs {
		if slices.Contains(i.Addrs, ip) {
			return nil
		}
	}
	return fmt.Errorf("node IP: %q not found in the host's network interfaces", ip)
}

// Route is a default route.
type Route struct {
	Interface string
	IPv6      bool
	Metric    uint32
}

// DefaultRoutes reads the default routes from the kernel, best first. A missing table (IPv6 disabled) has none.
func DefaultRoutes(fsys fs.FS) ([]Route, error) {
	var out []Route
	for _, t := range []struct {
		file  string
		parse func(string) []Route
	}{{"proc/net/route", routes4}, {"proc/net/ipv6_route", routes6}} {
		text, err := fs.ReadFile(fsys, t.file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read routes: %w", err)
		}
		rs := t.parse(string(text))
		slices.SortStableFunc(rs, func(a, b Route) int { return int(int64(a.Metric) - int64(b.Metric)) })
		out = append(out, rs...)
	}
	return out, nil
}

const (
	routeUp     = 0x001 // RTF_UP
	routeReject = 0x200 // RTF_REJECT
)

// routes4 parses lines of: interface destination gateway flags refs use metric mask …, with hexadecimal numbers except
// for the metric.
func routes4(table string) []Route {
	var out []Route
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) < 8 || f[1] != "00000000" || f[7] != "00000000" {
			continue
		}
		var flags, metric uint32
		if _, err := fmt.Sscanf(f[3]+" "+f[6], "%x %d", &flags, &metric); err != nil || flags&routeUp == 0 ||
			flags&routeReject != 0 {
			continue
		}
		out = append(out, Route{Interface: f[0], Metric: metric})
	}
	return out
}

// routes6 parses lines of: destination length source length gateway metric refs use flags interface, with hexadecimal
// numbers.
func routes6(table string) []Route {
	var out []Route
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) < 10 || f[1] != "00" || strings.Trim(f[0], "0") != "" {
			continue
		}
		metric, err1 := hex.DecodeString(f[5])
		flags, err2 := hex.DecodeString(f[8])
		if err1 != nil || err2 != nil || len(metric) != 4 || len(flags) != 4 {
			continue
		}
		if fl := binary.BigEndian.Uint32(flags); fl&routeUp == 0 || fl&routeReject != 0 {
			continue
		}
		out = append(out, Route{Interface: f[9], IPv6: true, Metric: binary.BigEndian.Uint32(metric)})
	}
	return out
}
