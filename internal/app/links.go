package app

import (
	"context"
	"io"
	"io/fs"
	"net/http"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"k8s.io/client-go/rest"

	"keelson/internal/node/shutdown"
	"keelson/internal/resources/eviction"
	"keelson/internal/runtime/container"
	"keelson/internal/runtime/cri"
	"keelson/internal/storage/volume/persistent"
)

// Links are ways to the outside that the caller brings, where the agent would
// otherwise make its own from the configuration: with them it runs in memory,
// in virtual time. The zero value brings none.
type Links struct {
	// Runtime is a connection to the container runtime. It stays the caller's to
	// close.
	Runtime grpc.ClientConnInterface
	// API is how to reach the API server, instead of the kubeconfig; whether there
	// is one is still the configuration's to say.
	API *rest.Config
	// Operator is how whoever runs the agent reaches it.
	Operator Operator
	// NoFileWatch has static manifests re-read from time to time and not watched:
	// the kernel's notifications know nothing of virtual time.
	NoFileWatch bool
	// ManifestChanges reports changes of static manifests in place of the kernel.
	ManifestChanges <-chan fsnotify.Event
	// Netfilter runs iptables and ip6tables; nil: nothing is kept of their chains.
	Netfilter func(ctx context.Context, program string, args ...string) error
	// Machine is what describes the machine, from its root; nil: the files of the one
	// that this process runs on.
	Machine fs.FS
	// Gauges measure what is left on the node and what pods use; nil: the machine is
	// measured.
	Gauges eviction.Source
	// Login connects to whoever shuts the machine down, instead of its login manager.
	Login func(context.Context) (shutdown.Session, error)
	// Kmsg opens the kernel's log; nil: nobody reads it.
	Kmsg func() (io.ReadCloser, error)
	// Processors tells what the machine's processors do; nil: nobody does.
	Processors container.Processors
	// KeepPlace looks after where the agent's own process and the machine's others are;
	// nil: nobody does.
	KeepPlace func(context.Context) error
	// SELinux is the node's SELinux, instead of the machine's.
	SELinux persistent.Labels
	// Sockets are made and reached by these, instead of in the file system. Nil: there.
	Sockets *Sockets
	// Local is given what would answer on the agent's own socket, instead of that.
	Local func(http.Handler)
}

func (l Links) dialRuntime(cfg cri.Config) (*cri.Client, error) {
	if l.Runtime != nil {
		return cri.Over(l.Runtime, l.Runtime, cfg), nil
	}
	return cri.Dial(cfg)
}
