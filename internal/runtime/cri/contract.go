package cri

import (
	"strings"
	"unicode"
)

const (
	// APIVersion is the only supported version of the CRI.
	APIVersion = "v1"
	// MaxMessage is the maximum size of a message. A list of a thousand containers is about one
	// megabyte.
	MaxMessage = 16 << 20
)

// operations are the calls whose metric label is not the call's name in snake case.
var operations = map[string]string{
	"UpdateContainerResources": "update_container",
	"StreamPodSandboxes":       "list_podsandbox",
	"StreamContainers":         "list_containers",
	"StreamImages":             "list_images",
	"StreamContainerStats":     "list_container_stats",
	"StreamPodSandboxStats":    "list_podsandbox_stats",
	"StreamPodSandboxMetrics":  "list_podsandbox_metrics",
}

// OperationType returns the label operation_type of a call in metrics: create_container for
// CreateContainer, run_podsandbox for RunPodSandbox.
func OperationType(method string) string {
	if op, ok := operations[method]; ok {
		return op
	}
	var b strings.Builder
	for i, r := range strings.ReplaceAll(method, "PodSandbox", "Podsandbox") {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
