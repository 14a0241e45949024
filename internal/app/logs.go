package app

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	v1beta1 "k8s.io/kubelet/config/v1beta1"

	"keelson/internal/pods/pod"
	"keelson/internal/runtime/rotate"
)

// buildRotation builds what measures logs, and what keeps them short unless the
// configuration lets them grow.
func (a *agent) buildRotation() error {
	k := &a.cfg.Kubelet
	a.metrics.MustRegister(rotate.NewUsage(k.PodLogsDir, a.runningLogs))
	size, err := maxLogSize(k)
	if err != nil {
		return err
	}
	a.rotator = rotate.New(rotate.Config{Runtime: a.runtime, Running: a.runningLogs, Known: a.observed.Synced(), Root: k.PodLogsDir,
		MaxSize: size, MaxFiles: int(*k.ContainerLogMaxFiles), Workers: int(*k.ContainerLogMaxWorkers),
		Period: k.ContainerLogMonitorInterval.Duration, Log: a.log, Now: time.Now})
	return nil
}

// maxLogSize is the size at which a log is rotated; below zero for logs that may grow.
func maxLogSize(k *v1beta1.KubeletConfiguration) (int64, error) {
	size, err := resource.ParseQuantity(k.ContainerLogMaxSize)
	switch {
	case err != nil:
		return 0, fmt.Errorf("read containerLogMaxSize: %w", err)
	case size.Sign() < 0:
		return -1, nil
	}
	return max(size.Value(), 1), nil
}

// liveLogs lists the logs of containers that have not ended.
func (a *agent) liveLogs() func(log string) bool {
	live := map[string]bool{}
	for _, uid := range a.observed.UIDs() {
		have, _ := a.observed.Get(uid)
		for _, c := range have.Containers {
			if c.State != pod.StateExited {
				live[c.LogPath] = true
			}
		}
	}
	return func(log string) bool { return live[log] }
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
