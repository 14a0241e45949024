package app

import (
	"context"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"k8s.io/client-go/rest"

	"keelson/internal/config"
	"keelson/internal/host/logind"
	"keelson/internal/host/shutdown"
	"keelson/internal/resources/eviction"
	"keelson/internal/runtime/container"
	"keelson/internal/runtime/cri"
	"keelson/internal/storage/selinux"
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
	// Operator is how the operator reaches the agent.
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
	// Login connects to what shuts the machine down, instead of its login manager.
	Login func(context.Context) (shutdown.Session, error)
	// Kmsg opens the kernel's log; nil: it is not read.
	Kmsg func() (io.ReadCloser, error)
	// Processors tells what the machine's processors do; nil: not used.
	Processors container.Processors
	// KeepPlace maintains where the agent's own process and the machine's others are;
	// nil: not used.
	KeepPlace func(context.Context) error
	// SELinux is the node's SELinux, instead of the machine's.
	SELinux persistent.Labels
	// Sockets are made and reached by these, instead of in the file system. Nil: there.
	Sockets *Sockets
	// Local is given what would answer on the agent's own socket, instead of that.
	Local func(http.Handler)
}

// Operator is the way from the agent to who runs it, and back. Each field is optional.
type Operator struct {
	Verbosity func(uint32) error             // sets the log level
	Hangup    <-chan os.Signal               // asks for a reload of the configuration
	Load      func() (*config.Config, error) // reads the configuration
	// Contended gets a message when another process opens the lock file.
	Contended <-chan error
	Notify    func(state string) (bool, error) // notifies the service manager
}

func (l Links) dialRuntime(cfg cri.Config) (*cri.Client, error) {
	if l.Runtime != nil {
		return cri.Over(l.Runtime, l.Runtime, cfg), nil
	}
	return cri.Dial(cfg)
}

// dialLogin connects to the machine's login manager.
func (l Links) dialLogin(ctx context.Context) (shutdown.Session, error) {
	if l.Login != nil {
		return l.Login(ctx)
	}
	s, err := logind.Dial(ctx)
	if err != nil {
		return nil, err // not s: a nil of its type is no nil of the interface
	}
	return s, nil
}

// labels is the node's SELinux; nil if it has none.
func (l Links) labels() persistent.Labels {
	if l.SELinux != nil {
		return l.SELinux
	}
	if host := selinux.Here(); host != nil {
		return host
	}
	return nil
}

// Sockets are where programs of the node and the agent find each other.
type Sockets struct {
	Listen func(path string) (net.Listener, error)
	Dial   func(ctx context.Context, path string) (net.Conn, error)
}
