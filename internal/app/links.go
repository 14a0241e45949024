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

// Links are connections to the outside that the caller supplies. The agent uses them in place of those that it would
// create from the configuration, so that it can run in memory and in virtual time. The zero value supplies none.
type Links struct {
	// Runtime is a connection to the container runtime. The caller closes it.
	Runtime grpc.ClientConnInterface
	// API is how to reach the API server, instead of the kubeconfig. The configuration still decides whether there is an
	// API server.
	API *rest.Config
	// Operator connects the agent with its operator.
	Operator Operator
	// NoFileWatch: static manifests are read periodically and not watched, because the kernel's notifications do not
	// follow virtual time.
	NoFileWatch bool
	// ManifestChanges reports changes of static manifests, instead of the kernel.
	ManifestChanges <-chan fsnotify.Event
	// Netfilter runs iptables and ip6tables; nil: their chains are not maintained.
	Netfilter func(ctx context.Context, program string, args ...string) error
	// Machine holds the files that describe the machine, from its root; nil: those of the machine that this process runs
	// on.
	Machine fs.FS
	// Gauges measure what is available on the node and what pods use; nil: the machine is measured.
	Gauges eviction.Source
	// Login connects to the service that shuts the machine down, instead of logind.
	Login func(context.Context) (shutdown.Session, error)
	// Kmsg opens the kernel's log; nil: it is not read.
	Kmsg func() (io.ReadCloser, error)
	// Processors reads the idle time of the machine's CPUs; nil: not used.
	Processors container.Processors
	// KeepPlace maintains the cgroups and the OOM score of the agent's process and other system processes; nil: not used.
	KeepPlace func(context.Context) error
	// SELinux is used instead of the machine's SELinux.
	SELinux persistent.Labels
	// Sockets creates sockets and connects to them; nil: they are in the file system.
	Sockets *Sockets
	// Local receives the handler for the agent's local socket, which is not created then; nil: the socket is created.
	Local func(http.Handler)
}

// Operator connects the agent with its operator and with the service manager. Each field is optional.
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

// Sockets listens and dials on the sockets between the agent and other programs of the node.
type Sockets struct {
	Listen func(path string) (net.Listener, error)
	Dial   func(ctx context.Context, path string) (net.Conn, error)
}
