package settings

import (
	v1beta1 "k8s.io/kubelet/config/v1beta1"

	"keelson/internal/config"
	"keelson/internal/host/machine"
	"keelson/internal/resources/cpu"
	"keelson/internal/resources/memory"
	"keelson/internal/resources/topology"
	"keelson/internal/resources/userns"
)

// UserIDs is how many user IDs a pod with a user namespace has.
func UserIDs(k *v1beta1.KubeletConfiguration) uint32 {
	if u := k.UserNamespaces; u != nil && u.IDsPerPod != nil {
		return uint32(*u.IDsPerPod)
	}
	return userns.DefaultIDs
}

// Topology is the rules of the topology manager.
func Topology(k *v1beta1.KubeletConfiguration, layout machine.Layout) (topology.Rules, error) {
	return topology.RulesOf(topology.Policy(k.TopologyManagerPolicy), k.TopologyManagerPolicyOptions, layout)
}

// CPUGates are the gates of options of the CPU manager.
func CPUGates(c *config.Config) cpu.Gates {
	return cpu.Gates{
		Beta:  c.Gates.Enabled("CPUManagerPolicyBetaOptions"),
		Alpha: c.Gates.Enabled("CPUManagerPolicyAlphaOptions"),
	}
}

// Memory is how the memory manager works.
func Memory(c *config.Config, m machine.Info, layout machine.Layout) memory.Config {
	k := &c.Kubelet
	return memory.Config{
		Dir:       c.Flags.RootDir,
		Policy:    k.MemoryManagerPolicy,
		Nodes:     layout.Nodes,
		PageSizes: m.PageSizes(),
		Reserved:  memory.ReservedOf(k.ReservedMemory),
	}
}
