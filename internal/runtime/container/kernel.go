package container

import (
	"log/slog"

	netutils "k8s.io/utils/net"

	"keelson/internal/host/cgroup"
)

// ReadKernel detects the features of the kernel.
func ReadKernel(selinux bool, pageSizes []uint64) Kernel {
	groups, err := cgroup.Detect()
	v2 := err == nil && groups.V2()
	k := Kernel{CgroupV2: v2, SELinux: selinux, SwapController: cgroup.LimitsSwap("/sys/fs/cgroup", v2)}
	// Names are 2MB and 1GB, in ascending order of the size.
	for _, size := range pageSizes {
		k.HugePageSizes = append(k.HugePageSizes, cgroup.PageSizeName(size))
	}
	return k
}

// ParseClusterDNS returns the valid addresses of clusterDNS.
func ParseClusterDNS(configured []string, log *slog.Logger) []string {
	var out []string
	for _, text := range configured {
		ip := netutils.ParseIPSloppy(text) // leading zeros are accepted, as in the API
		if ip == nil {
			log.Warn("ignoring invalid clusterDNS IP", "ip", text)
			continue
		}
		out = append(out, ip.String())
	}
	return out
}
