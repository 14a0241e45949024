package app

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"keelson/internal/pods/pod"
	"keelson/internal/runtime/rotate"
)

// buildRotation builds what measures logs, and what keeps them short unless the
// configuration lets them grow.
func (a *agent) buildRotation() error {
	k := &a.cfg.Kubelet
	a.metrics.MustRegister(rotate.NewUsage(k.PodLogsDir, a.runningLogs))
	size, err := resource.ParseQuantity(k.ContainerLogMaxSize)
	if err != nil {
		return fmt.Errorf("read containerLogMaxSize: %w", err)
	}
	if size.Sign() < 0 {
		return nil
	}
	a.rotator = rotate.New(rotate.Config{Runtime: a.runtime, Running: a.runningLogs, Known: a.observed.Synced(), Root: k.PodLogsDir,
		MaxSize: max(size.Value(), 1), MaxFiles: int(*k.ContainerLogMaxFiles), Workers: int(*k.ContainerLogMaxWorkers),
		Period: k.ContainerLogMonitorInterval.Duration, Log: a.log, Now: time.Now})
	return nil
}

// runningLogs are the logs that can grow.
func (a *agent) runningLogs() []rotate.Log {
	var list []rotate.Log
	for _, uid := range a.observed.UIDs() {
		have, _ := a.observed.Get(uid)
		for _, c := range have.Containers {
			if c.State == pod.StateRunning && c.LogPath != "" {
				list = append(list, rotate.Log{Container: c.ID, Path: c.LogPath, Pod: have.Ref, Name: c.Name})
			}
		}
	}
	return list
}
