package app

import (
	"k8s.io/client-go/features"

	"keelson/internal/config"
)

// libraryGates passes the agent's feature gates to client-go, which reads environment variables by default.
type libraryGates config.Gates

func (g libraryGates) Enabled(name features.Feature) bool {
	return config.Gates(g).Enabled(string(name))
}

// useGates sets the gates of client-go for the whole process. No client may have been made before.
func useGates(g config.Gates) { features.ReplaceFeatureGates(libraryGates(g)) }
