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

// localHosts are the entries of every pod that has a network of its own.
const localHosts = `127.0.0.1	localhost
::1	localhost ip6-localhost ip6-loopback
fe00::0	ip6-localnet
fe00::0	ip6-mcastprefix
fe00::1	ip6-allnodes
fe00::2	ip6-allrouters
`

// podHosts is the hosts file of a pod with a network of its own.
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

// nodeHosts is the hosts file of a pod on the host's network.
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

// mountsHosts reports whether the container gets the agent's hosts file: not
// before the pod has an address to write there, unless the file is the node's, and
// not when a volume is mounted in its place.
func mountsHosts(p *v1.Pod, c *v1.Container, podIPs []string) bool {
	for _, m := range c.VolumeMounts {
		if path.Clean(m.MountPath) == etcHosts {
			return false
		}
	}
	return len(podIPs) > 0 || p.Spec.HostNetwork
}

// writeHosts writes the pod's hosts file and returns its path. All containers
// of a pod share it; a running one sees a change at once, because the file is
// written in place. Without a change it is left alone: on a full disk, to write it
// anew would take it from those that run.
func (r *Runner) writeHosts(p *v1.Pod, podIPs []string) (string, error) {
	content := podHosts(podIPs, podNames(p, r.cfg.DNS.ClusterDomain), p.Spec.HostAliases)
	if p.Spec.HostNetwork {
		host, err := os.ReadFile(etcHosts)
		if err != nil {
			return "", pod.ShowAs(err.Error(), fmt.Errorf("read the node's hosts file: %w", err))
		}
		content = nodeHosts(string(host), p.Spec.HostAliases)
	}
	file := hostsFile(r.cfg.RootDir, p.UID)
	if holds(file, content, 0o644) {
		return file, nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return "", pod.ShowAs(err.Error(), fmt.Errorf("make directory of pod: %w", err))
	}
	if err := writeFile(file, content, 0o644); err != nil {
		return "", pod.ShowAs(err.Error(), fmt.Errorf("write hosts file of pod: %w", err))
	}
	return file, nil
}

// holds reports whether a file is as it is to be. One that a container has made long is
// not read to find out.
func holds(file, content string, mode os.FileMode) bool {
	fi, err := os.Lstat(file)
	if err != nil || fi.Mode() != mode || fi.Size() != int64(len(content)) {
		return false
	}
	have, err := os.ReadFile(file)
	return err == nil && string(have) == content
}

// writeFile is os.WriteFile with the mode meant, whatever the umask.
func writeFile(file, content string, mode os.FileMode) error {
	if err := os.WriteFile(file, []byte(content), mode); err != nil {
		return err
	}
	return os.Chmod(file, mode)
}
