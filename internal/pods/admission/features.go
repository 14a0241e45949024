package admission

import (
	"errors"
	"log/slog"
	"os"
	"strings"

	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/nodedeclaredfeatures"
	featuretypes "k8s.io/component-helpers/nodedeclaredfeatures/types"
)

// Features are the features that the node declares for schedulers.
type Features struct {
	Version *utilversion.Version // of the agent; nil: none are declared
	Gates   featuretypes.FeatureGate
}

// NewFeatures are the features of a version of the agent.
func NewFeatures(version string, gates featuretypes.FeatureGate, log *slog.Logger) Features {
	v, err := utilversion.ParseSemantic(version)
	if err != nil {
		log.Warn("failed to parse version, no features are declared", "version", version, "err", err)
		return Features{}
	}
	return Features{Version: v, Gates: gates}
}

// Declared returns the features that the node declares. Some depend on the runtime.
func (f Features) Declared(userNamespacesHostNetwork bool) []string {
	if f.Version == nil {
		return nil
	}
	return nodedeclaredfeatures.DefaultFramework.DiscoverNodeFeatures(&featuretypes.NodeConfiguration{
		FeatureGates:    f.Gates,
		Version:         f.Version,
		RuntimeFeatures: featuretypes.RuntimeFeatures{UserNamespacesHostNetwork: userNamespacesHostNetwork},
	})
}

// AppArmorHost returns nil if the host can enforce AppArmor profiles, else the reason.
func AppArmorHost() error {
	on, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	if err != nil || !strings.HasPrefix(string(on), "Y") {
		return errors.New("AppArmor is not enabled on the host")
	}
	return nil
}
