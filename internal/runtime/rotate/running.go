package rotate

import (
	"k8s.io/apimachinery/pkg/types"

	"keelson/internal/pods/pod"
)

// seen is the cache of the last observed state of the runtime.
type seen interface {
	UIDs() []types.UID
	Get(types.UID) (pod.Runtime, bool)
}

// Running returns the logs of running containers. Others do not grow.
func Running(o seen) []Log {
	var list []Log
	for _, uid := range o.UIDs() {
		have, _ := o.Get(uid)
		for _, c := range have.Containers {
			if c.State == pod.StateRunning && c.LogPath != "" {
				list = append(list, Log{Container: c.ID, Path: c.LogPath, Pod: have.Ref, Name: c.Name})
			}
		}
	}
	return list
}
