package admission

import (
	"strings"
	"testing"

	utilversion "k8s.io/apimachinery/pkg/util/version"

	"keelson/test/kit/parity"
)

// A sysctl is unsafe on a kernel that does not namespace it.
func TestSafeSysctls(t *testing.T) {
	parity.ProvesPart(t, 2, "LIFE-115")
	parity.ProvesPart(t, 2, "SRC-36")
	const always = "kernel.shm_rmid_forced net.ipv4.ip_local_port_range net.ipv4.tcp_syncookies " +
		"net.ipv4.ping_group_range net.ipv4.ip_unprivileged_port_start"
	since := []struct{ kernel, names string }{
		{"3.16", "net.ipv4.ip_local_reserved_ports"},
		{"4.5", "net.ipv4.tcp_keepalive_time net.ipv4.tcp_keepalive_intvl net.ipv4.tcp_keepalive_probes"},
		{"4.6", "net.ipv4.tcp_fin_timeout"},
		{"4.15", "net.ipv4.tcp_rmem net.ipv4.tcp_wmem"},
	}
	const never = "net.ipv4.tcp_mem net.ipv4.ip_forward net.core.somaxconn kernel.sem kernel.msgmax " +
		"kernel.shmmax net.ipv6.conf.all.forwarding vm.swappiness fs.mqueue.msg_max net.ipv4.tcp_tw_reuse"
	check := func(kernel, names string, safe bool) {
		t.Helper()
		rules := Rules{}
		if kernel != "" {
			rules.Kernel = utilversion.MustParseGeneric(kernel)
		}
		for _, name := range strings.Fields(names) {
			for _, name := range []string{name, strings.ReplaceAll(name, ".", "/")} {
				no := rules.Admit(Input{Pod: sysctls(name, nil)})
				if forbidden := no != nil && no.Reason == "SysctlForbidden"; forbidden == safe {
					t.Errorf("%s on kernel %q: %+v, want it to be safe: %v", name, kernel, no, safe)
				}
			}
		}
	}
	before := map[string]string{"3.16": "3.15", "4.5": "4.4.302", "4.6": "4.5.7", "4.15": "4.14.336"}
	for _, kernel := range []string{"", "3.10", "4.15", "6.1.0"} {
		check(kernel, always, true)
		check(kernel, never, false)
	}
	for _, s := range since {
		check("", s.names, false)
		check(before[s.kernel], s.names, false)
		check(s.kernel, s.names, true)
		check("6.12.9", s.names, true)
	}
}
