package settings

import (
	"log/slog"

	v1beta1 "k8s.io/kubelet/config/v1beta1"

	"keelson/internal/host/cgroup"
	"keelson/internal/host/setup"
)

// Process returns the part that sets the limits, the OOM score and the cgroup of the agent's process, and the sysctls.
func Process(k *v1beta1.KubeletConfiguration, log *slog.Logger) *setup.Process {
	return setup.NewProcess(setup.ProcessConfig{
		Proc:                  "/proc",
		MaxOpenFiles:          uint64(k.MaxOpenFiles),
		OOMScoreAdj:           int(*k.OOMScoreAdj),
		ProtectKernelDefaults: k.ProtectKernelDefaults,
		Place:                 func() error { return cgroup.Place(k.KubeletCgroups, k.SystemCgroups) },
		Log:                   log,
	})
}
