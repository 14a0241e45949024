package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// blocks returns the command blocks of a page, by their heading.
func blocks(t *testing.T, page string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	out, heading, open := map[string][]string{}, "", false
	for line := range strings.Lines(string(text)) {
		command, ok := strings.CutPrefix(line, "    ")
		switch {
		case strings.HasPrefix(line, "## "):
			heading = strings.TrimSpace(line[3:])
		case ok && open:
			out[heading][len(out[heading])-1] += command
		case ok:
			out[heading] = append(out[heading], command)
		}
		open = ok
	}
	return out
}

// scratch is a directory with the files of a node that kubeadm has set up. Commands that would
// change the machine are replaced by scripts that print their arguments.
type scratch struct {
	t    *testing.T
	root string
}

// kubeadmConfig has the fields that kubeadm writes and --validate checks, and settings with which
// the configuration is valid on the machine of the test.
const kubeadmConfig = head +
	`authentication: {anonymous: {enabled: false}, webhook: {cacheTTL: 0s, enabled: true}, x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}}
authorization: {mode: Webhook, webhook: {cacheAuthorizedTTL: 0s, cacheUnauthorizedTTL: 0s}}
cgroupDriver: systemd
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix:///var/run/containerd/containerd.sock
cpuManagerReconcilePeriod: 0s
crashLoopBackOff: {}
evictionPressureTransitionPeriod: 0s
fileCheckFrequency: 0s
healthzBindAddress: 127.0.0.1
healthzPort: 10248
httpCheckFrequency: 0s
imageMaximumGCAge: 0s
imageMinimumGCAge: 0s
logging: {flushFrequency: 0, options: {json: {infoBufferSize: "0"}, text: {infoBufferSize: "0"}}, verbosity: 0}
memorySwap: {}
nodeStatusReportFrequency: 0s
nodeStatusUpdateFrequency: 0s
rotateCertificates: true
runtimeRequestTimeout: 0s
shutdownGracePeriod: 0s
shutdownGracePeriodCriticalPods: 0s
staticPodPath: /etc/kubernetes/manifests
streamingConnectionIdleTimeout: 0s
syncFrequency: 0s
volumeStatsAggPeriod: 0s
failCgroupV1: false
failSwapOn: false
`

func newScratch(t *testing.T) *scratch {
	t.Helper()
	s := &scratch{t, t.TempDir()}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s.file("checkout/bin/kubelet", "#!/bin/sh\n"+asKubelet+"=1 exec "+exe+" --hostname-override=n1 \"$@\"\n", 0o755)
	drop, err := os.ReadFile("../../packaging/systemd/20-keelson.conf")
	if err != nil {
		t.Fatal(err)
	}
	s.file("checkout/packaging/systemd/20-keelson.conf", string(drop), 0o644)
	s.file("var/lib/kubelet/config.yaml", strings.ReplaceAll(kubeadmConfig, "/etc/", s.root+"/etc/"), 0o644)
	s.file("var/lib/kubelet/kubeadm-flags.env",
		`KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///var/run/containerd/containerd.sock"`+"\n", 0o644)
	s.file("etc/kubernetes/kubelet.conf",
		"apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: \"https://192.0.2.1:6443\"}}]\n"+
			"contexts: [{name: x, context: {cluster: c}}]\ncurrent-context: x\n", 0o600)
	s.file("etc/kubernetes/pki/ca.crt", "", 0o644)
	for _, program := range []string{"systemctl", "kubectl"} {
		s.file("bin/"+program, "#!/bin/sh\necho "+program+" \"$@\"\n", 0o755)
	}
	return s
}

func (s *scratch) file(name, text string, mode os.FileMode) {
	s.t.Helper()
	path := filepath.Join(s.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		s.t.Fatal(err)
	}
}

// run runs a block of the page unchanged, except that its paths are below the scratch root.
func (s *scratch) run(block string) (string, error) {
	s.t.Helper()
	for _, dir := range []string{"/var/", "/etc/", "/opt/"} {
		block = strings.ReplaceAll(block, dir, s.root+dir)
	}
	cmd := exec.CommandContext(s.t.Context(), "sh", "-eu", "-c", block)
	cmd.Dir = filepath.Join(s.root, "checkout")
	cmd.Env = append(os.Environ(), "PATH="+s.root+"/bin:"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestInstallPage runs the commands of the page on a scratch node: installation and rollback.
func TestInstallPage(t *testing.T) {
	page := blocks(t, "../../docs/install.md")
	there, back := page["Putting it in place"], page["Rollback"]
	if len(there) != 4 || len(back) != 1 {
		t.Fatalf("the page has these commands: %q and %q", there, back)
	}
	s := newScratch(t)
	do := func(block string) string {
		t.Helper()
		out, err := s.run(block)
		if err != nil {
			t.Fatalf("%s%v: %s", block, err, out)
		}
		return out
	}
	drop := filepath.Join(s.root, "etc/systemd/system/kubelet.service.d/20-keelson.conf")
	do(there[0])
	if out := do(there[1]); !strings.HasSuffix(out, "the configuration is valid\n") {
		t.Errorf("the node's configuration is judged: %s", out)
	}
	if out := do(strings.Replace(there[1], "--validate", "--show-config", 1)); !strings.Contains(out,
		`clusterDNS: ["10.96.0.10"]`) || !strings.Contains(out, "# "+s.root+"/var/lib/kubelet/config.yaml") {
		t.Errorf("the node's configuration is shown as %s", out)
	}
	if out := do(there[2]); out != "systemctl daemon-reload\nsystemctl restart kubelet\n" {
		t.Errorf("the unit is reported %q", out)
	}
	if text, err := os.ReadFile(drop); err != nil || !strings.Contains(string(text), "/opt/keelson/bin/kubelet") {
		t.Errorf("the drop-in is %q, %v", text, err)
	}
	if out := do(there[3]); !strings.HasPrefix(out, "kubectl get node ") || strings.Count(out, "\n") != 2 {
		t.Errorf("the node is looked at by %q", out)
	}
	// Flags that the unit reads from /etc/default/kubelet are validated, too.
	s.file("etc/default/kubelet", "KUBELET_EXTRA_ARGS=--max-pods=-7\n", 0o644)
	if out, err := s.run(there[1]); err == nil ||
		!strings.Contains(out, "flag --max-pods: maxPods: -7 must not be negative") {
		t.Errorf("with a wrong flag in /etc/default/kubelet: %v, %s", err, out)
	}
	do(back[0])
	if _, err := os.Stat(drop); !os.IsNotExist(err) {
		t.Errorf("after rollback the drop-in is there: %v", err)
	}
}
