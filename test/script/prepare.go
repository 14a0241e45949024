package script

import (
	"fmt"
	"net"
	"os"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"keelson/internal/api/client"
)

// Prepare sets up what all bubbles of a process share. TestMain calls it.
func Prepare() {
	// One of the library's handlers keeps errors a millisecond apart by the clock
	// of the whole process, which is decades ahead of that of a bubble.
	utilruntime.ErrorHandlers = nil
	// The first agent of the process registers the metrics of API requests, while
	// clients of other tests make requests.
	client.Metrics()
	// The resolver makes its channels at its first use. Made in one bubble, they
	// would be of no use to the others.
	if _, err := net.LookupHost("localhost"); err != nil {
		fmt.Fprintln(os.Stderr, "cannot look up localhost:", err)
		os.Exit(1)
	}
}
