package rig

import (
	"fmt"
	"net/netip"
	"path/filepath"
)

// Names that a rig uses outside its folder.
const (
	prefix    = "keelson-rig-" // folder, cgroup and CNI network are this and the number
	ledger    = "rig.json"
	maxNumber = 63

	serviceCIDR = "10.96.0.0/16"
	clusterDNS  = "10.96.0.10"

	// Folders that other programs make outside the rig's folder. No option changes their paths. They are removed
	// with the last rig if they did not exist before the rigs and are empty.
	cniResults     = "/var/lib/cni/results"
	containerLinks = "/var/log/containers"
	shimSockets    = "/run/containerd/s"
	devicePlugins  = "/var/lib/kubelet/device-plugins"
)

var strayFolders = []string{
	cniResults, "/var/lib/cni", containerLinks, "/var/log/pods",
	shimSockets, "/run/containerd", devicePlugins, "/var/lib/kubelet",
}

// number identifies a rig on the machine.
type number int

func (n number) name() string            { return fmt.Sprintf("%s%d", prefix, int(n)) }
func (n number) bridge() string          { return fmt.Sprintf("kl%d", int(n)) }
func (n number) loopback() string        { return fmt.Sprintf("127.88.%d.1", int(n)) }
func (n number) cgroup() string          { return "/" + n.name() }
func (n number) folder(in string) string { return filepath.Join(in, n.name()) }

// pods is the rig's share of 10.231.0.0/16: four times 256 addresses.
func (n number) pods() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 231, byte(4 * int(n)), 0}), 22)
}

// gateway is the address of the bridge and of the node. No other machine reaches it.
func (n number) gateway() netip.Addr { return n.pods().Addr().Next() }
