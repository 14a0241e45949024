package container

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"

	"keelson/internal/pods/pod"
)

// localHosts are the fixed entries of the hosts file of a pod with its own network.
const localHosts = `127.0.0.1	localhost
::1	localhost ip6-localhost ip6-loopback
fe00::0	ip6-localnet
fe00::0	ip6-mcastprefix
fe00::1	ip6-allnodes
fe00::2	ip6-allrouters
`

// podHosts returns the hosts file of a pod with its own network.
func podHosts(ips []string, n names, aliases []v1.HostAlias) string {
	var b strings.Builder
	b.WriteString("# Kubernetes-managed hosts file.\n")
	b.WriteString(localHosts)
	for _, ip := range ips {
		b.WriteString(ip + "\t")
		if n.domain != "" {
			b.WriteString(n.fqdn() + "\t")
		}
		b.WriteString(n.host + "\n")
	}
	writeAliases(&b, aliases)
	return b.String()
}

// nodeHosts returns the hosts file of a pod on the host network.
func nodeHosts(host string, aliases []v1.HostAlias) string {
	var b strings.Builder
	b.WriteString("# Kubernetes-managed hosts file (host network).\n")
	b.WriteString(host)
	writeAliases(&b, aliases)
	return b.String()
}

func writeAliases(b *strings.Builder, aliases []v1.HostAlias) {
	if len(aliases) == 0 {
		return
	}
	b.WriteString("\n# Entries added by HostAliases.\n")
	for _, a := range aliases {
		b.WriteString(a.IP + "\t" + strings.Join(a.Hostnames, "\t") + "\n")
	}
}

// mountsHosts reports whether the managed hosts file is mounted into the container. It is not while
// the pod has no IP, unless it is on the host network, and not if a volume is mounted at
// /etc/hosts.
func mountsHosts(p *v1.Pod, c *v1.Container, podIPs []string) bool {
	for _, m := range c.VolumeMounts {
		if path.Clean(m.MountPath) == etcHosts {
			return false
		}
	}
	return len(podIPs) > 0 || p.Spec.HostNetwork
}

// writeHosts writes the pod's hosts file and returns its path. All containers of the pod share the
// file. It is written in place, so that running containers see the change. An unchanged file is not
// rewritten: on a full disk, rewriting would truncate it.
func (r *Runner) writeHosts(p *v1.Pod, podIPs []string) (string, error) {
	content := podHosts(podIPs, podNames(p, r.cfg.DNS.ClusterDomain), p.Spec.HostAliases)
	if p.Spec.HostNetwork {
		host, err := os.ReadFile(etcHosts)
		if err != nil {
			return "", pod.ShowAs(err.Error(), fmt.Errorf("read hosts file of the node: %w", err))
		}
		content = nodeHosts(string(host), p.Spec.HostAliases)
	}
	file := hostsFile(r.cfg.RootDir, p.UID)
	if hasContent(file, content, 0o644) {
		return file, nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return "", pod.ShowAs(err.Error(), fmt.Errorf("create pod directory: %w", err))
	}
	if err := writeFile(file, content, 0o644); err != nil {
		return "", pod.ShowAs(err.Error(), fmt.Errorf("write hosts file of the pod: %w", err))
	}
	return file, nil
}

// hasContent reports whether a file has the given content and mode. A file of another size, to
// which a container may have written, is not read.
func hasContent(file, content string, mode os.FileMode) bool {
	fi, err := os.Lstat(file)
	if err != nil || fi.Mode() != mode || fi.Size() != int64(len(content)) {
		return false
	}
	have, err := os.ReadFile(file)
	return err == nil && string(have) == content
}

// writeFile is os.WriteFile with exactly the given mode, regardless of the umask.
func writeFile(file, content string, mode os.FileMode) error {
	if err := os.WriteFile(file, []byte(content), mode); err != nil {
		return err
	}
	return os.Chmod(file, mode)
}
