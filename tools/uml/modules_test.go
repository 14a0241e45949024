package uml

import (
	"slices"
	"testing"
)

func TestModulesAreLoadedAfterDependencies(t *testing.T) {
	const deps = "kernel/net/bridge/bridge.ko: kernel/net/802/stp.ko kernel/net/llc/llc.ko\n" +
		"kernel/net/bridge/br_netfilter.ko: kernel/net/bridge/bridge.ko kernel/net/802/stp.ko kernel/net/llc/llc.ko\n" +
		"kernel/drivers/net/veth.ko:\n"
	for name, want := range map[string][]string{
		"veth": {"kernel/drivers/net/veth.ko"},
		"br_netfilter": {"kernel/net/llc/llc.ko", "kernel/net/802/stp.ko", "kernel/net/bridge/bridge.ko",
			"kernel/net/bridge/br_netfilter.ko"},
		"built-in": nil,
	} {
		if got := order(deps, name); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
