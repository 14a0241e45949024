package apiclient

import (
	"fmt"
	"runtime"
)

// ContentProtobuf is the encoding used unless the configuration names another.
const ContentProtobuf = "application/vnd.kubernetes.protobuf"

// Component is the source named by every event of the agent.
const Component = "kubelet"

// UserAgent is how the agent calls itself. Audit rules and flow schemas match
// the leading kubelet/.
func UserAgent(version string) string {
	return fmt.Sprintf("kubelet/%s (%s/%s) keelson", version, runtime.GOOS, runtime.GOARCH)
}
