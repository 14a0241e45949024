package script

import (
	"fmt"
	"net"
	"os"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"keelson/internal/api/client"
)

// Prepare sets up the state that all bubbles of a process share. TestMain calls it.
func Prepare() {
	// One of the library's handlers delays errors that follow within a millisecond, by the
	// clock of the whole process, which is decades ahead of that of a bubble.
	utilruntime.ErrorHandlers = nil
	// The first agent of the process registers the metrics of API requests, while
	// clients of other tests make requests.
	client.Metrics()
	// The resolver creates its channels at its first use. Channels of one bubble
	// cannot be used in the others.
	if _, err := net.LookupHost("localhost"); err != nil {
		fmt.Fprintln(os.Stderr, "cannot look up localhost:", err)
		os.Exit(1)
	}
}
