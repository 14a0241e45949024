package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	v1beta1 "k8s.io/kubelet/config/v1beta1"
)

// Config is the effective configuration.
type Config struct {
	Kubelet  v1beta1.KubeletConfiguration // file, drop-ins and flags over the defaults
	Own      Own                          // fields of the file that upstream's does not have
	Flags    Flags                        // what exists only on the command line
	Gates    Gates
	Origins  Origins
	NodeName string
	Version  string // as in node.status.nodeInfo.kubeletVersion

	// Warnings are logged once at the start: unknown fields, deprecated flags, settings
	// without effect.
	Warnings []string

	// CommandLine are all flags with their values, before the files are read.
	CommandLine map[string]string

	native       map[string]string // flags without a configuration field, with their values
	unbuiltFlags []string          // flags that were set and have no effect
	mismatches   Problems          // values in the files of the wrong type for their fields
}

// Flags are the settings without a field in the configuration file.
type Flags struct {
	ConfigFile          string
	ConfigDir           string
	Kubeconfig          string // empty: standalone, without an API server
	BootstrapKubeconfig string
	HostnameOverride    string
	NodeIP              string
	RootDir             string
	CertDir             string
	CloudProvider       string
	NodeLabels          map[string]string
	RuntimeCgroups      string
	SeccompDefault      bool // either this or the field is enough
	LockFile            string
	ExitOnLock          bool // --exit-on-lock-contention
	// EndedInstances is how many ended instances of each container are kept:
	// --maximum-dead-containers-per-container.
	EndedInstances int32
	// LeastEndedAge is --minimum-container-ttl-duration. It is checked and has no effect (docs/decisions/0060).
	LeastEndedAge time.Duration
	// IgnoreEviction leaves the hard eviction thresholds out of node allocatable, and disables the
	// eviction threshold for the memory of all pods: --experimental-allocatable-ignore-eviction.
	IgnoreEviction bool

	ImageCredentialProviderConfig string
	ImageCredentialProviderBinDir string

	Validate   bool // check the configuration and exit
	ShowConfig bool // print the effective configuration and exit
}

// questions are the flags that print something instead of starting the agent.
var questions = []string{"help", "version", "validate", "show-config"}

// Answer is the error that Load returns for a flag such as --help that only prints
// something. Text goes to standard output and the exit status is 0.
type Answer struct{ Text string }

func (a *Answer) Error() string { return a.Text }

// Standalone reports whether the agent runs without an API server.
func (c *Config) Standalone() bool { return c.Flags.Kubeconfig == "" }

// Load reads the command line (without the program's name), the files it names, and the
// defaults. The error is an [*Answer], a [Problems], or that of a flag or file that cannot
// be read. With Problems the Config is returned, too, so that further checks can be made.
func Load(args []string) (*Config, error) {
	c := &Config{
		Flags:   Flags{RootDir: DefaultRootDir, CertDir: DefaultCertDir, EndedInstances: 1},
		Own:     defaultOwn(),
		Version: version,
	}
	setDefaults(&c.Kubelet, nil)
	setFlagDefaults(&c.Kubelet)

	fs, err := parseFlags(c, args)
	if err != nil {
		return nil, err
	}
	c.CommandLine = map[string]string{}
	fs.VisitAll(func(f *pflag.Flag) { c.CommandLine[f.Name] = f.Value.String() })
	c.Origins = Origins{}
	if c.Flags.ConfigFile != "" || c.Flags.ConfigDir != "" {
		if err := c.loadFiles(); err != nil {
			return nil, err
		}
		// Flags have precedence over the files, which have overwritten them. Gates are merged by
		// name.
		fileGates := maps.Clone(c.Kubelet.FeatureGates)
		if fs, err = parseFlags(c, args); err != nil {
			return nil, err
		}
		for name, on := range fileGates {
			if _, set := c.Kubelet.FeatureGates[name]; !set {
				c.Kubelet.FeatureGates[name] = on
			}
		}
	}
	c.noteFlags(fs)
	return c, c.finish()
}

// finish derives the settings that depend on others, and validates the whole.
func (c *Config) finish() error {
	var problems Problems
	if c.Flags.RootDir != "" { // paths below it are compared as text
		c.Flags.RootDir = filepath.Clean(c.Flags.RootDir)
	}
	c.Gates, problems = newGates(c.Kubelet.FeatureGates)
	_, ignored := c.NodeIPs()
	for _, ip := range ignored {
		c.Warnings = append(c.Warnings, fmt.Sprintf("--node-ip: %q is not an IP address and is ignored", ip))
	}
	if c.Kubelet.SystemCgroups != "" && c.Kubelet.CgroupRoot == "" {
		problems = append(problems, Problem{
			Field: "systemCgroups",
			Value: c.Kubelet.SystemCgroups,
			Why:   "needs cgroupRoot",
		})
	}
	name, err := nodeName(c.Flags.HostnameOverride, os.Hostname)
	if err != nil {
		return err
	}
	c.NodeName = name
	more, notes := validate(c)
	if problems = slices.Concat(c.mismatches, problems, more); len(problems) > 0 {
		return c.located(problems)
	}
	c.Warnings = append(c.Warnings, notes...)
	if w := unbuilt(c); w != "" {
		c.Warnings = append(c.Warnings, w)
	}
	return nil
}

// located sets the origin of each problem.
func (c *Config) located(ps Problems) error {
	for i := range ps {
		if ps[i].Origin == "" {
			ps[i].Origin = c.Origins.Of(ps[i].Field)
		}
	}
	return ps
}

// noteFlags records which flags were set, and warns about the deprecated ones.
func (c *Config) noteFlags(fs *flagSet) {
	c.native = map[string]string{}
	fs.VisitAll(func(f *pflag.Flag) {
		if fs.fields[f.Name] == "" && fs.deprecated[f.Name] == "" && f.Value.String() != "" &&
			!slices.Contains(questions, f.Name) {
			c.native[f.Name] = f.Value.String()
		}
	})
	fs.Visit(func(f *pflag.Flag) {
		if slices.Contains(unbuiltFlags, f.Name) && f.Value.String() != f.DefValue {
			c.unbuiltFlags = append(c.unbuiltFlags, f.Name)
		}
		if field := fs.fields[f.Name]; field != "" {
			c.Origins[field] = "flag --" + f.Name
		}
		if why := fs.deprecated[f.Name]; why != "" {
			c.Warnings = append(c.Warnings, fmt.Sprintf("Flag --%s has been deprecated, %s", f.Name, why))
		}
	})
}

// nodeName returns the name of this node in the API.
func nodeName(override string, hostname func() (string, error)) (string, error) {
	name := override
	if name == "" {
		h, err := hostname()
		if err != nil {
			return "", fmt.Errorf("find the node's name: %w", err)
		}
		name = h
	}
	if name = strings.ToLower(strings.TrimSpace(name)); name == "" {
		return "", errors.New("find the node's name: the host name is empty; set --hostname-override")
	}
	return name, nil
}

// secretField is the field whose values, which are request headers, may be credentials. They are
// shown as masked.
const (
	secretField = "staticPodURLHeader"
	masked      = "<masked>"
)

// Masked returns the effective configuration for the log: header values, which may be credentials,
// are masked.
func (c *Config) Masked() *v1beta1.KubeletConfiguration {
	k := c.Kubelet.DeepCopy()
	for _, values := range k.StaticPodURLHeader {
		for i := range values {
			values[i] = masked
		}
	}
	return k
}
