package cri

import (
	"strings"
	"unicode"
)

const (
	// APIVersion is the only version of the interface that is spoken.
	APIVersion = "v1"
	// MaxMessage is the size of the largest message sent or received. A list
	// of a thousand containers is about one megabyte.
	MaxMessage = 16 << 20
)

// operations are the calls whose metric label is not simply the call's name in
// snake case.
var operations = map[string]string{
	"UpdateContainerResources": "update_container",
	"StreamPodSandboxes":       "list_podsandbox",
	"StreamContainers":         "list_containers",
	"StreamImages":             "list_images",
	"StreamContainerStats":     "list_container_stats",
	"StreamPodSandboxStats":    "list_podsandbox_stats",
	"StreamPodSandboxMetrics":  "list_podsandbox_metrics",
}

// OperationType is the value of the label operation_type under which metrics
// count a call: CreateContainer is create_container, RunPodSandbox is
// run_podsandbox.
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
