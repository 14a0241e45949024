package app

import (
	"k8s.io/client-go/features"

	"keelson/internal/config"
)

// libraryGates hands the settings of the agent's gates to client-go, which without them reads the environment.
type libraryGates config.Gates

func (g libraryGates) Enabled(name features.Feature) bool {
	return config.Gates(g).Enabled(string(name))
}

// useGates sets the gates of client-go for the whole process. No client may have been made before.
func useGates(g config.Gates) { features.ReplaceFeatureGates(libraryGates(g)) }
