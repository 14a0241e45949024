package client

import (
	"context"
	"log/slog"

	corev1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

var _ pod.Events = LogEvents{}

// LogEvents logs events, for an agent without an API server.
type LogEvents struct{ Log *slog.Logger }

// Pod logs an event about a pod or one of its containers.
func (e LogEvents) Pod(p *corev1.Pod, container, eventType, reason, message string) {
	args := []any{"pod", p.Namespace + "/" + p.Name, "podUID", p.UID, "reason", reason, "message", message}
	if container != "" {
		args = append(args, "containerName", container)
	}
	e.log(eventType, args)
}

// Annotated logs an event about a pod without the annotations, which repeat the message.
func (e LogEvents) Annotated(p *corev1.Pod, _ map[string]string, eventType, reason, message string) {
	e.Pod(p, "", eventType, reason, message)
}

// Node logs an event about the node.
func (e LogEvents) Node(eventType, reason, message string) {
	e.log(eventType, []any{"reason", reason, "message", message})
}

func (e LogEvents) log(eventType string, args []any) {
	level := slog.LevelInfo
	if eventType == corev1.EventTypeWarning {
		level = slog.LevelWarn
	}
	e.Log.Log(context.Background(), level, "event", args...)
}
