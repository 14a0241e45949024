package config

import (
	"k8s.io/client-go/features"
)

// libraryGates passes the agent's feature gates to client-go, which reads environment variables by default.
type libraryGates Gates

func (g libraryGates) Enabled(name features.Feature) bool {
	return Gates(g).Enabled(string(name))
}

// ApplyToLibraries sets the gates of client-go for the whole process. It has to be called
// before the first client is made.
func (g Gates) ApplyToLibraries() { features.ReplaceFeatureGates(libraryGates(g)) }
