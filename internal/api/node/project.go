package node

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"keelson/internal/host/machine"
	"keelson/internal/runtime/cri"
)

// Input is the input of Project.
type Input struct {
	Now  time.Time
	Prev v1.NodeStatus // the status at the API server; empty for a new node

	Hostname  string
	Addresses []netip.Addr
	External  bool // a cloud controller sets the addresses
	Provided  bool // Addresses, or their family, are configured

	Machine     machine.Info
	Capacity    v1.ResourceList
	Allocatable v1.ResourceList
	Storage     bool // ephemeral storage is accounted for
	Devices     Devices

	RuntimeName    string // containerd
	RuntimeVersion string // as reported by the runtime
	Health         Health
	Ill            []error // failed checks
	Problems       []error // errors of other parts
	Pressure       map[v1.NodeConditionType]bool
	Images         []*runtimeapi.Image
	MaxImages      int // -1: no limit

	Version          string // of the agent
	Port             int32
	DeclaredFeatures []string
	VolumesInUse     []v1.UniqueVolumeName
}

// Devices are the resources of device plugins.
type Devices struct {
	Capacity    v1.ResourceList
	Allocatable v1.ResourceList // the healthy ones
	Gone        []v1.ResourceName
}

// Project computes the node's status, and the events of conditions that changed. Fields that others own are kept.
func Project(in Input) (v1.NodeStatus, []string) {
	st := *in.Prev.DeepCopy()
	st.Addresses = addresses(in)

	st.Capacity, st.Allocatable = in.Capacity.DeepCopy(), in.Allocatable.DeepCopy()
	for name, q := range in.Devices.Capacity {
		st.Capacity[name] = q
	}
	for name, q := range in.Devices.Allocatable {
		st.Allocatable[name] = q
	}
	for _, name := range in.Devices.Gone {
		st.Capacity[name], st.Allocatable[name] = *zero(), *zero()
	}
	keepExtended(st.Capacity, st.Allocatable, in.Prev)

	st.NodeInfo = systemInfo(in)
	st.DaemonEndpoints.KubeletEndpoint.Port = in.Port
	st.Images = images(in.Images, in.MaxImages)
	st.RuntimeHandlers = handlers(in.Health.Status)
	st.Features = features(in.Health)
	st.DeclaredFeatures = in.DeclaredFeatures
	st.VolumesInUse = in.VolumesInUse

	vs := append(pressureVerdicts(in.Pressure),
		readyCondition(in.Health, in.Ill, in.Problems, st.Capacity, in.Storage, in.Now))
	var events []string
	st.Conditions, events = conditions(in.Prev.Conditions, vs, in.Now)
	return st, events
}

func systemInfo(in Input) v1.NodeSystemInfo {
	m := in.Machine
	info := v1.NodeSystemInfo{
		MachineID:               m.MachineID,
		SystemUUID:              m.SystemUUID,
		BootID:                  m.BootID,
		KernelVersion:           m.Kernel,
		OSImage:                 m.OSImage,
		OperatingSystem:         m.OS,
		Architecture:            m.Arch,
		ContainerRuntimeVersion: runtimeVersion(in.RuntimeName, in.RuntimeVersion),
		KubeletVersion:          in.Version,
	}
	if m.Swap > 0 {
		info.Swap = &v1.NodeSwapStatus{Capacity: ptr.To(int64(m.Swap))}
	}
	return info
}

// runtimeVersion returns name://version. A leading v of the version and suffixes of distributions (1.6.20~ds1) are cut
// off.
func runtimeVersion(name, v string) string {
	if parsed, err := version.ParseSemantic(v); err == nil {
		v = parsed.String()
	} else if parsed, err := version.ParseGeneric(v); err == nil {
		v = parsed.String()
	}
	if name == "" {
		return "Unknown"
	}
	return name + "://" + v
}

func handlers(s cri.Status) []v1.NodeRuntimeHandler {
	var out []v1.NodeRuntimeHandler
	for _, h := range s.Handlers {
		out = append(out, v1.NodeRuntimeHandler{
			Name: h.Name,
			Features: &v1.NodeRuntimeHandlerFeatures{
				RecursiveReadOnlyMounts: ptr.To(h.RecursiveReadOnlyMounts),
				UserNamespaces:          ptr.To(h.UserNamespaces),
			},
		})
	}
	slices.SortFunc(out, func(a, b v1.NodeRuntimeHandler) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func features(h Health) *v1.NodeFeatures {
	if h.LastResponse.IsZero() {
		return nil
	}
	return &v1.NodeFeatures{SupplementalGroupsPolicy: ptr.To(h.Status.SupplementalGroupsPolicy)}
}
