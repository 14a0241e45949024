package cgroup

import (
	"fmt"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/systemd"
)

// systemdUnits calls systemd through the library that the OCI runtime uses, so that values have the same meaning.
// Values must be set through systemd, because it resets values that are only in the files when it reloads.
type systemdUnits struct{ v2 bool }

func (s systemdUnits) manager(n name) (cgroups.Manager, error) {
	unit, parent := n.slice()
	c := &cgroups.Cgroup{Name: unit, Parent: parent, Systemd: true, Resources: &cgroups.Resources{SkipDevices: true}}
	if s.v2 {
		return systemd.NewUnifiedManager(c, "")
	}
	return systemd.NewLegacyManager(c, nil)
}

func (s systemdUnits) start(n name, v Values) error {
	m, err := s.manager(n)
	if err != nil {
		return err
	}
	if err := m.Apply(-1); err != nil { // -1: without a process
		return fmt.Errorf("start unit: %w", err)
	}
	if err := m.Set(resources(v, s.v2)); err != nil {
		return fmt.Errorf("set unit properties: %w", err)
	}
	return nil
}

func (s systemdUnits) stop(n name) error {
	m, err := s.manager(n)
	if err != nil {
		return err
	}
	if err := m.Destroy(); err != nil {
		return fmt.Errorf("stop unit: %w", err)
	}
	return nil
}

// resources converts v for the library.
func resources(v Values, v2 bool) *cgroups.Resources {
	r := &cgroups.Resources{
		SkipDevices:     true, // devices are managed by the runtime
		SkipFreezeOnSet: true,
		CpuQuota:        v.CPUQuota,
		CpuPeriod:       v.CPUPeriod,
		Memory:          v.Memory,
	}
	if v.CPUShares != 0 {
		if v2 {
			r.CpuWeight = weight(v.CPUShares)
		} else {
			r.CpuShares = v.CPUShares
		}
	}
	if v.PIDs != 0 {
		r.PidsLimit = &v.PIDs
	}
	for size, limit := range v.HugePages {
		r.HugetlbLimit = append(r.HugetlbLimit, &cgroups.HugepageLimit{
			Pagesize: PageSizeName(size),
			Limit:    uint64(limit),
		})
	}
	return r
}
