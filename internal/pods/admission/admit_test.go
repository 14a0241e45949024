package admission

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"

	"keelson/internal/pods/pod"
	"keelson/test/kit/parity"
)

func list(pairs ...string) v1.ResourceList {
	out := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func asks(pairs ...string) *v1.Pod {
	return &v1.Pod{Spec: v1.PodSpec{
		Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: list(pairs...)}}},
	}}
}

func edited(f func(*v1.Pod)) *v1.Pod {
	p := asks()
	p.Spec.SecurityContext = &v1.PodSecurityContext{}
	f(p)
	return p
}

func onPort(protocol v1.Protocol, ip string, port int32) *v1.Pod {
	return edited(func(p *v1.Pod) {
		p.Spec.Containers[0].Ports = []v1.ContainerPort{
			{ContainerPort: 1, Protocol: protocol, HostIP: ip, HostPort: port},
		}
	})
}

func sysctls(name string, f func(*v1.PodSpec)) *v1.Pod {
	return edited(func(p *v1.Pod) {
		p.Spec.SecurityContext.Sysctls = []v1.Sysctl{{Name: name, Value: "1"}}
		if f != nil {
			f(&p.Spec)
		}
	})
}

func wants(selector map[string]string, op v1.NodeSelectorOperator, values ...string) *v1.Pod {
	return edited(func(p *v1.Pod) {
		p.Spec.NodeSelector = selector
		if op != "" {
			p.Spec.Affinity = &v1.Affinity{
				NodeAffinity: &v1.NodeAffinity{
					RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
						NodeSelectorTerms: []v1.NodeSelectorTerm{{
							MatchExpressions: []v1.NodeSelectorRequirement{{Key: "disk", Operator: op, Values: values}},
						}},
					},
				},
			}
		}
	})
}

var (
	noExecute  = v1.Taint{Key: "maintenance", Value: "yes", Effect: v1.TaintEffectNoExecute}
	noSchedule = v1.Taint{Key: "full", Effect: v1.TaintEffectNoSchedule}
)

func TestAdmit(t *testing.T) {
	parity.ProvesPart(t, 2, "SRC-36")
	parity.Proves(t, "SRC-38", "SRC-39", "SRC-40", "SRC-41", "SRC-43", "SRC-44", "SRC-47", "SRC-48")
	parity.ProvesPart(t, 3, "SRC-42")
	rules := Rules{
		AllowedUnsafeSysctls: []string{"kernel.msg*", "net/core/somaxconn"},
		PodLevelResources:    true,
		Version:              utilversion.MustParseSemantic("1.36.3"),
	}
	room := list("cpu", "2", "memory", "1Gi", "ephemeral-storage", "1Gi", "pods", "3", "example.com/gpu", "1",
		"hugepages-2Mi", "4Mi")
	node := func(f func(*v1.Node)) *v1.Node {
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", Labels: map[string]string{"disk": "ssd"}}}
		if f != nil {
			f(n)
		}
		return n
	}
	tainted := node(func(n *v1.Node) { n.Spec.Taints = []v1.Taint{noSchedule, noExecute} })
	for _, tc := range []struct {
		name   string
		pod    *v1.Pod
		others []*v1.Pod
		node   *v1.Node
		absent bool
		rules  *Rules
		reason string // "" = admitted
		says   string
	}{
		{name: "a plain pod", pod: asks()},
		{name: "without a node", pod: asks(), absent: true, reason: "InvalidNodeInfo", says: "Kubelet cannot get node info."},

		{name: "a safe sysctl", pod: sysctls("net.ipv4.tcp_syncookies", nil)},
		{name: "a safe one with slashes", pod: sysctls("net/ipv4/ip_local_port_range", nil)},
		{
			name:   "an unsafe one",
			pod:    sysctls("net.core.rmem_max", nil),
			reason: "SysctlForbidden",
			says:   `forbidden sysctl: "net.core.rmem_max" not allowlisted`,
		},
		{
			name:   "an unsafe one with slashes",
			pod:    sysctls("net/core/rmem_max", nil),
			reason: "SysctlForbidden",
			says:   `forbidden sysctl: "net.core.rmem_max" not allowlisted`,
		},
		{name: "an unsafe one that a pattern allows", pod: sysctls("kernel.msgmax", nil)},
		{name: "an unsafe one that is allowed by name", pod: sysctls("net.core.somaxconn", nil)},
		{
			name:   "of the network, on the host's",
			pod:    sysctls("net.ipv4.tcp_syncookies", func(s *v1.PodSpec) { s.HostNetwork = true }),
			reason: "SysctlForbidden",
			says:   `forbidden sysctl: "net.ipv4.tcp_syncookies" not allowed with host net enabled`,
		},
		{
			name:   "of IPC, on the host's",
			pod:    sysctls("kernel.msgmax", func(s *v1.PodSpec) { s.HostIPC = true }),
			reason: "SysctlForbidden",
			says:   `forbidden sysctl: "kernel.msgmax" not allowed with host ipc enabled`,
		},
		{
			name:   "a safe one of IPC, on the host's",
			pod:    sysctls("kernel.shm_rmid_forced", func(s *v1.PodSpec) { s.HostIPC = true }),
			reason: "SysctlForbidden",
			says:   `forbidden sysctl: "kernel.shm_rmid_forced" not allowed with host ipc enabled`,
		},
		{
			name:   "semaphores of the host",
			pod:    sysctls("kernel.sem", func(s *v1.PodSpec) { s.HostIPC = true }),
			rules:  &Rules{AllowedUnsafeSysctls: []string{"kernel.sem"}},
			reason: "SysctlForbidden",
			says:   `forbidden sysctl: "kernel.sem" not allowed with host ipc enabled`,
		},
		{
			name:   "message queues of the host",
			pod:    sysctls("fs.mqueue.msg_max", func(s *v1.PodSpec) { s.HostIPC = true }),
			rules:  &Rules{AllowedUnsafeSysctls: []string{"fs.mqueue.*"}},
			reason: "SysctlForbidden",
			says:   `forbidden sysctl: "fs.mqueue.msg_max" not allowed with host ipc enabled`,
		},
		{
			name:   "an unsafe one that is allowed, on the host's network",
			pod:    sysctls("net.core.somaxconn", func(s *v1.PodSpec) { s.HostNetwork = true }),
			reason: "SysctlForbidden",
			says:   `forbidden sysctl: "net.core.somaxconn" not allowed with host net enabled`,
		},
		{
			name:   "one that is not allowed, on the host's network",
			pod:    sysctls("net.core.rmem_max", func(s *v1.PodSpec) { s.HostNetwork = true }),
			reason: "SysctlForbidden",
			says:   `forbidden sysctl: "net.core.rmem_max" not allowlisted`,
		},
		{
			name: "of the network, on the host's IPC",
			pod:  sysctls("net.core.somaxconn", func(s *v1.PodSpec) { s.HostIPC = true }),
		},
		{
			name: "of IPC, on the host's network",
			pod:  sysctls("kernel.shm_rmid_forced", func(s *v1.PodSpec) { s.HostNetwork = true }),
		},

		{name: "for this system", pod: edited(func(p *v1.Pod) {
			p.Labels = map[string]string{"kubernetes.io/os": "linux"}
			p.Spec.OS = &v1.PodOS{Name: v1.Linux}
		})},
		{
			name:   "labelled for another",
			pod:    edited(func(p *v1.Pod) { p.Labels = map[string]string{"kubernetes.io/os": "windows"} }),
			reason: "PodOSSelectorNodeLabelDoesNotMatch",
			says:   "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
		},
		{
			name:   "made for another",
			pod:    edited(func(p *v1.Pod) { p.Spec.OS = &v1.PodOS{Name: v1.Windows} }),
			reason: "PodOSNotSupported",
			says:   "Failed to admit pod as the OS field doesn't match node OS",
		},
		{
			name: "strict groups, unknown to the runtime",
			pod: edited(func(p *v1.Pod) {
				p.Spec.SecurityContext.SupplementalGroupsPolicy = ptr.To(v1.SupplementalGroupsPolicyStrict)
			}),
			reason: "SupplementalGroupsPolicyNotSupported",
			says:   "SupplementalGroupsPolicy=Strict is not supported in this node",
		},
		{name: "strict groups, known", pod: edited(func(p *v1.Pod) {
			p.Spec.SecurityContext.SupplementalGroupsPolicy = ptr.To(v1.SupplementalGroupsPolicyStrict)
		}), node: node(func(n *v1.Node) {
			n.Status.Features = &v1.NodeFeatures{SupplementalGroupsPolicy: ptr.To(
				true)}
		})},

		{
			name:   "all that is left",
			pod:    asks("cpu", "1500m", "memory", "512Mi"),
			others: []*v1.Pod{asks("cpu", "500m", "memory", "512Mi")},
		},
		{
			name:   "more CPU than is left",
			pod:    asks("cpu", "1501m"),
			others: []*v1.Pod{asks("cpu", "500m")},
			reason: "OutOfcpu",
			says:   "Node didn't have enough resource: cpu, requested: 1501, used: 500, capacity: 2000",
		},
		{
			name:   "more memory",
			pod:    asks("memory", "2Gi"),
			reason: "OutOfmemory",
			says:   "Node didn't have enough resource: memory, requested: 2147483648, used: 0, capacity: 1073741824",
		},
		{name: "more storage", pod: asks("ephemeral-storage", "2Gi"), reason: "OutOfephemeral-storage"},
		{
			name:   "one pod too many",
			pod:    asks(),
			others: []*v1.Pod{asks(), asks(), asks()},
			reason: "OutOfpods",
			says:   "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3",
		},
		{
			name:   "a device that is taken",
			pod:    asks("example.com/gpu", "1"),
			others: []*v1.Pod{asks("example.com/gpu", "1")},
			reason: "OutOfexample.com/gpu",
		},
		{name: "a device this node never had", pod: asks("example.com/fpga", "1")},
		{
			name:   "a device that the pod has by a claim",
			pod:    claimed("example.com/gpu"),
			others: []*v1.Pod{asks("example.com/gpu", "1")},
		},
		{
			name:   "a device that an init container has by a claim",
			pod:    initClaimed("setup"),
			others: []*v1.Pod{asks("example.com/gpu", "1")},
		},
		{name: "a device that is taken, where another container has its own by a claim", pod: initClaimed("main"),
			others: []*v1.Pod{asks("example.com/gpu", "1")}, reason: "OutOfexample.com/gpu"},
		{name: "a device this node never had, of an init container", pod: edited(func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: list(
				"example.com/fpga", "1")}}}
		})},
		{
			name:   "one of Kubernetes' own that this node never had",
			pod:    asks("my.kubernetes.io/fpga", "1"),
			reason: "OutOfmy.kubernetes.io/fpga",
		},
		{
			name:   "one whose domain ends like Kubernetes' own",
			pod:    asks("mykubernetes.io/fpga", "1"),
			reason: "OutOfmykubernetes.io/fpga",
		},
		{
			name:   "one that is named like a quota",
			pod:    asks("requests.example.com/fpga", "1"),
			reason: "OutOfrequests.example.com/fpga",
		},
		{
			name:   "a device, beside a pod that has its own by a claim",
			pod:    asks("example.com/gpu", "1"),
			others: []*v1.Pod{claimed("example.com/gpu")},
		},
		{name: "huge pages this node never had", pod: asks("hugepages-1Gi", "1Gi"), reason: "OutOfhugepages-1Gi"},
		{name: "CPU comes before memory", pod: asks("cpu", "3", "memory", "2Gi"), reason: "OutOfcpu"},
		{name: "nothing asked fits a full node", pod: asks(), others: []*v1.Pod{asks("cpu", "5")}},
		{name: "an init container counts where it asks for more", pod: edited(func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: list("cpu", "3")}}}
		}), reason: "OutOfcpu"},
		{name: "overhead counts", pod: edited(func(p *v1.Pod) { p.Spec.Overhead = list("cpu", "3") }), reason: "OutOfcpu"},

		{name: "a selector that matches", pod: wants(map[string]string{"disk": "ssd"}, "")},
		{
			name:   "a selector that does not",
			pod:    wants(map[string]string{"disk": "hdd"}, ""),
			reason: "NodeAffinity",
			says:   "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
		},
		{name: "an affinity that matches", pod: wants(nil, v1.NodeSelectorOpIn, "hdd", "ssd")},
		{name: "an affinity that does not", pod: wants(nil, v1.NodeSelectorOpNotIn, "ssd"), reason: "NodeAffinity"},
		{name: "an invalid affinity", pod: wants(nil, "Perhaps", "x"), reason: "NodeAffinity"},
		{
			name:   "another node's",
			pod:    edited(func(p *v1.Pod) { p.Spec.NodeName = "node2" }),
			reason: "NodeName",
			says:   "Predicate NodeName failed: node(s) didn't match the requested node name",
		},
		{name: "this node's", pod: edited(func(p *v1.Pod) { p.Spec.NodeName = "node1" })},

		{
			name:   "a port that is taken",
			pod:    onPort("TCP", "", 80),
			others: []*v1.Pod{onPort("", "", 80)},
			reason: "NodePorts",
			says:   "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
		},
		{name: "for another protocol", pod: onPort("UDP", "", 80), others: []*v1.Pod{onPort("TCP", "", 80)}},
		{name: "on another address", pod: onPort("TCP", "10.0.0.1", 80), others: []*v1.Pod{onPort("TCP", "10.0.0.2", 80)}},
		{
			name:   "on all addresses",
			pod:    onPort("TCP", "10.0.0.1", 80),
			others: []*v1.Pod{onPort("TCP", "0.0.0.0", 80)},
			reason: "NodePorts",
		},
		{name: "ports inside pods do not matter", pod: onPort("TCP", "", 0), others: []*v1.Pod{onPort("TCP", "", 0)}},

		{
			name:   "a taint that ends pods",
			pod:    asks(),
			node:   tainted,
			reason: "TaintToleration",
			says:   "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
		},
		{name: "tolerated", pod: edited(func(p *v1.Pod) {
			p.Spec.Tolerations = []v1.Toleration{{Key: "maintenance", Operator: v1.TolerationOpExists}}
		}), node: tainted},
		{
			name: "static pods stay",
			pod:  edited(func(p *v1.Pod) { p.Annotations = map[string]string{pod.AnnotationConfigSource: "file"} }),
			node: tainted,
		},
		{
			name: "taints for the scheduler alone",
			pod:  asks(),
			node: node(func(n *v1.Node) { n.Spec.Taints = []v1.Taint{noSchedule} }),
		},

		{
			name:   "resources of the pod, the gate off",
			pod:    edited(func(p *v1.Pod) { p.Spec.Resources = &v1.ResourceRequirements{Requests: list("cpu", "1")} }),
			rules:  &Rules{},
			reason: "PodLevelResourcesNotSupported",
		},
		{name: "resources of the pod count in place of the containers'", pod: edited(func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests = list("cpu", "1")
			p.Spec.Resources = &v1.ResourceRequirements{Requests: list("cpu", "3")}
		}), reason: "OutOfcpu"},
		{
			name:   "a feature the node does not declare",
			pod:    restartsAll(),
			reason: "PodFeatureUnsupported",
			says:   "Pod requires node features that are not available: RestartAllContainersOnContainerExits",
		},
		{
			name: "a feature it declares",
			pod:  restartsAll(),
			node: node(func(n *v1.Node) { n.Status.DeclaredFeatures = []string{"RestartAllContainersOnContainerExits"} }),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := Input{Pod: tc.pod, Others: tc.others, Node: tc.node, Allocatable: room}
			if in.Node == nil && !tc.absent {
				in.Node = node(nil)
			}
			r := rules
			if tc.rules != nil {
				r = *tc.rules
			}
			got := r.Admit(in)
			if got == nil {
				got = &pod.Rejection{}
			}
			if got.Reason != tc.reason || tc.says != "" && got.Message != tc.says ||
				tc.reason != "" && got.Message == "" {
				t.Errorf("rejected %q: %s\nwant %q: %s", got.Reason, got.Message, tc.reason, tc.says)
			}
		})
	}
}

func restartsAll() *v1.Pod {
	return edited(func(p *v1.Pod) {
		p.Spec.Containers[0].RestartPolicy = ptr.To(v1.ContainerRestartPolicyNever)
		p.Spec.Containers[0].RestartPolicyRules = []v1.ContainerRestartRule{{
			Action: v1.ContainerRestartRuleActionRestartAllContainers,
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
				Operator: v1.ContainerRestartRuleOnExitCodesOpIn,
				Values:   []int32{1},
			},
		}}
	})
}

// claimed is a pod that requests one of a resource, backed by a claim.
func claimed(name string) *v1.Pod {
	p := asks(name, "1")
	p.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{
		ResourceClaimName: "c",
		RequestMappings: []v1.ContainerExtendedResourceRequest{{
			ContainerName: p.Spec.Containers[0].Name,
			ResourceName:  name,
			RequestName:   "r",
		}},
	}
	return p
}

// initClaimed is a pod whose init container requests a device, and whose given container
// has one by a claim.
func initClaimed(container string) *v1.Pod {
	p := claimed("example.com/gpu")
	p.Spec.InitContainers = []v1.Container{{Name: "setup", Resources: p.Spec.Containers[0].Resources}}
	p.Spec.Containers[0].Resources.Requests = nil
	p.Status.ExtendedResourceClaimStatus.RequestMappings[0].ContainerName = container
	return p
}

func TestFirstRejectionCounts(t *testing.T) {
	p := sysctls("kernel.pid_max", func(s *v1.PodSpec) { s.OS = &v1.PodOS{Name: v1.Windows}; s.NodeName = "node2" })
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}
	want := []string{"SysctlForbidden", "PodOSNotSupported", "OutOfpods", "NodeName"}
	mend := []func(*Input){
		func(*Input) {},
		func(in *Input) { in.Pod.Spec.SecurityContext.Sysctls = nil },
		func(in *Input) { in.Pod.Spec.OS = nil },
		func(in *Input) { in.Allocatable = list("pods", "1") },
	}
	in := Input{Pod: p, Node: node}
	for i, f := range mend {
		f(&in)
		if got := (Rules{}).Admit(in); got == nil || got.Reason != want[i] {
			t.Errorf("%d: %+v, want %s", i, got, want[i])
		}
	}
}

func TestAdmissible(t *testing.T) {
	now := metav1.Now()
	for name, tc := range map[string]struct {
		pod  *v1.Pod
		want bool
	}{
		"new":     {&v1.Pod{}, true},
		"running": {&v1.Pod{Status: v1.PodStatus{Phase: v1.PodRunning}}, true},
		"failed":  {&v1.Pod{Status: v1.PodStatus{Phase: v1.PodFailed}}, false},
		"done":    {&v1.Pod{Status: v1.PodStatus{Phase: v1.PodSucceeded}}, false},
		"deleted": {&v1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}}, false},
	} {
		if got := Admissible(tc.pod); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestPressureAppArmorAndShutdown(t *testing.T) {
	parity.Proves(t, "EVIC-15", "SRC-46")
	parity.ProvesPart(t, 3, "SRC-49")
	localhost := func(name string) *v1.Pod {
		return edited(func(p *v1.Pod) {
			p.Spec.SecurityContext.AppArmorProfile = &v1.AppArmorProfile{
				Type:             v1.AppArmorProfileTypeLocalhost,
				LocalhostProfile: &name,
			}
		})
	}
	ran := func(p *v1.Pod) *v1.Pod { p.Status.Phase = v1.PodRunning; return p }
	critical := edited(func(p *v1.Pod) { p.Spec.Priority = ptr.To[int32](2_000_000_000) })
	tolerant := edited(func(p *v1.Pod) {
		p.Spec.Tolerations = []v1.Toleration{{Key: v1.TaintNodeMemoryPressure, Operator: v1.TolerationOpExists}}
	})
	memory, disk, pid := v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure
	none := errors.New("AppArmor is not enabled on the host")
	for _, tc := range []struct {
		name         string
		pod          *v1.Pod
		pressure     []v1.NodeConditionType
		host         error
		leaving      bool
		reason, says string
	}{
		{
			name:     "best effort, with little memory left",
			pod:      asks(),
			pressure: []v1.NodeConditionType{memory},
			reason:   "Evicted",
			says:     "The node had condition: [MemoryPressure]. ",
		},
		{name: "burstable, with little memory left", pod: asks("cpu", "1"), pressure: []v1.NodeConditionType{memory}},
		{name: "one that can live with it", pod: tolerant, pressure: []v1.NodeConditionType{memory}},
		{name: "critical", pod: critical, pressure: []v1.NodeConditionType{memory, disk, pid}},
		{
			name:     "static",
			pod:      edited(func(p *v1.Pod) { p.Annotations = map[string]string{pod.AnnotationConfigSource: "file"} }),
			pressure: []v1.NodeConditionType{disk},
		},
		{
			name:     "a full disk",
			pod:      asks("cpu", "1"),
			pressure: []v1.NodeConditionType{disk},
			reason:   "Evicted",
			says:     "The node had condition: [DiskPressure]. ",
		},
		{name: "too many processes", pod: asks("cpu", "1"), pressure: []v1.NodeConditionType{pid}, reason: "Evicted"},
		{
			name:     "memory and disk, one that can live with the first",
			pod:      tolerant,
			pressure: []v1.NodeConditionType{memory, disk},
			reason:   "Evicted",
			says:     "The node had condition: [MemoryPressure DiskPressure]. ",
		},

		{name: "a profile that is enforced", pod: localhost("web")},
		{
			name:   "a profile that cannot be enforced",
			pod:    localhost("web"),
			host:   none,
			reason: "AppArmor",
			says:   "Cannot enforce AppArmor: AppArmor is not enabled on the host",
		},
		{
			name:   "a profile without a name",
			pod:    localhost(""),
			reason: "AppArmor",
			says:   "Cannot enforce AppArmor: localhost profile name is empty",
		},
		{name: "of a pod that has run", pod: ran(localhost("web")), host: none},
		{name: "no profile", pod: asks(), host: none},
		{name: "unconfined", pod: edited(func(p *v1.Pod) {
			p.Spec.SecurityContext.AppArmorProfile = &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}
		}), host: none},
		{name: "by the container", pod: edited(func(p *v1.Pod) {
			p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{
				AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault},
			}
		}), host: none, reason: "AppArmor"},
		{name: "by annotation", pod: edited(func(p *v1.Pod) {
			p.Annotations = map[string]string{"container.apparmor.security.beta.kubernetes.io/main": "runtime/default"}
		}), host: none, reason: "AppArmor"},

		{
			name:    "a node that leaves",
			pod:     critical,
			leaving: true,
			reason:  "NodeShutdown",
			says:    "Pod was rejected as the node is shutting down.",
		},
		{name: "all else comes first", pod: asks("cpu", "100"), leaving: true, reason: "OutOfcpu"},
		{
			name:     "but pressure comes before",
			pod:      asks("cpu", "100"),
			pressure: []v1.NodeConditionType{disk},
			reason:   "Evicted",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := Input{
				Pod:         tc.pod,
				Node:        &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}},
				Allocatable: list("cpu", "2", "pods", "3"),
				Pressure:    tc.pressure,
				Leaving:     tc.leaving,
			}
			got := Rules{AppArmor: tc.host}.Admit(in)
			switch {
			case got == nil && tc.reason == "":
			case got == nil:
				t.Errorf("admitted, want %s", tc.reason)
			case got.Reason != tc.reason || tc.says != "" && got.Message != tc.says:
				t.Errorf("%+v, want %s %q", got, tc.reason, tc.says)
			}
		})
	}
}

func TestManagersAfterSysctls(t *testing.T) {
	rules := Rules{
		Managers: func(*v1.Pod) *pod.Rejection {
			return &pod.Rejection{
				Reason:  "TopologyAffinityError",
				Message: "no",
			}
		},
	}
	in := Input{Pod: asks(), Allocatable: list("pods", "1")}
	if got := rules.Admit(in); got == nil || got.Reason != "TopologyAffinityError" {
		t.Errorf("%+v", got)
	}
	in.Pod = sysctls("net.core.rmem_max", nil)
	if got := rules.Admit(in); got == nil || got.Reason != "SysctlForbidden" {
		t.Errorf("%+v", got)
	}
}

// Lack names the features that a change of a pod needs and this node does not declare.
func TestLack(t *testing.T) {
	const resize, whole = "InPlacePodVerticalScalingInitContainers", "InPlacePodLevelResourcesVerticalScaling"
	first := func(cpu string, n int) *v1.Pod {
		p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main"}}}}
		for i := range n {
			p.Spec.InitContainers = append(p.Spec.InitContainers, v1.Container{
				Name:      fmt.Sprint("init", i),
				Resources: v1.ResourceRequirements{Requests: list("cpu", cpu)},
			})
		}
		return p
	}
	sized := func(cpu string) *v1.Pod {
		p := first("1", 0)
		p.Spec.Resources = &v1.ResourceRequirements{Requests: list("cpu", cpu)}
		return p
	}
	rules := Rules{Version: utilversion.MustParse("1.36.3")}
	for _, tc := range []struct {
		name     string
		rules    Rules
		old, now *v1.Pod
		declares []string
		says     string
	}{
		{"nothing", rules, first("1", 1), first("1", 1), nil, ""},
		{"an init container has another size", rules, first("1", 1), first("2", 1), nil,
			"Pod requires node features that are not available: " + resize},
		{"the node can do that", rules, first("1", 1), first("2", 1), []string{resize}, ""},
		{"the pod has another size", rules, sized("1"), sized("2"), []string{resize},
			"Pod requires node features that are not available: " + whole},
		{"other init containers", rules, first("1", 2), first("2", 1), nil, ""},
		{"no version", Rules{}, first("1", 1), first("2", 1), nil, ""},
	} {
		if got := tc.rules.Lack(tc.old, tc.now,
			&v1.Node{Status: v1.NodeStatus{DeclaredFeatures: tc.declares}}); got != tc.says {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.says)
		}
	}
}

func TestPreempt(t *testing.T) {
	parity.Proves(t, "EVIC-34")
	parity.ProvesPart(t, 3, "EVIC-32")
	critical := func(pairs ...string) *v1.Pod {
		p := asks(pairs...)
		p.Spec.Priority = ptr.To[int32](2_000_000_000)
		return p
	}
	other := func(name string, class v1.PodQOSClass, pairs ...string) *v1.Pod {
		p := asks(pairs...)
		p.Name, p.UID, p.Status.QOSClass = name, types.UID(name), class
		return p
	}
	whole := func(pairs ...string) *v1.Pod { // its containers ask for less
		p := asks("cpu", "10m")
		p.Spec.Resources = &v1.ResourceRequirements{Requests: list(pairs...)}
		return p
	}
	g, b, e := v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort
	for _, tc := range []struct {
		name   string
		pod    *v1.Pod
		others []*v1.Pod
		want   string
		err    string
	}{
		{
			name:   "a pod that is not critical preempts none",
			pod:    asks("cpu", "2"),
			others: []*v1.Pod{other("a", e, "cpu", "4")},
		},
		{name: "what fits needs nothing", pod: critical("cpu", "1"), others: []*v1.Pod{other("a", b, "cpu", "1")}},
		{
			name:   "burstable pods go before guaranteed",
			pod:    critical("cpu", "2"),
			others: []*v1.Pod{other("a", g, "cpu", "2"), other("b", b, "cpu", "2")},
			want:   "b",
		},
		{name: "the nearest in size is the victim", pod: critical("cpu", "1"), others: []*v1.Pod{
			other("big", b, "cpu", "2"),
			other("fit", b, "cpu", "1"),
			other("small", b, "cpu", "500m"),
			other("tiny", b, "cpu", "500m"),
		}, want: "fit"},
		{
			name: "what a pod asks for as a whole counts",
			pod:  func() *v1.Pod { p := whole("cpu", "2"); p.Spec.Priority = ptr.To[int32](2_000_000_000); return p }(),
			others: []*v1.Pod{other("small", b, "cpu", "1"), func() *v1.Pod {
				p := whole("cpu", "3")
				p.Name, p.UID, p.Status.QOSClass = "whole", "whole", b
				return p
			}()},
			want: "whole",
		},
		{
			name:   "several where one is not enough",
			pod:    critical("cpu", "3"),
			others: []*v1.Pod{other("a", b, "cpu", "2"), other("b", b, "cpu", "1"), other("c", g, "cpu", "1")},
			want:   "a b",
		},
		{
			name:   "guaranteed ones if it must be",
			pod:    critical("cpu", "4"),
			others: []*v1.Pod{other("a", b, "cpu", "1"), other("b", g, "cpu", "3")},
			want:   "a b",
		},
		{
			name:   "a place is a resource too, and best effort gives it",
			pod:    critical("cpu", "1"),
			others: []*v1.Pod{other("a", b), other("b", g), other("c", e), other("d", e), other("e", e)},
			want:   "c",
		},
		{
			name: "critical ones stay",
			pod:  critical("cpu", "2"),
			others: []*v1.Pod{func() *v1.Pod {
				p := critical("cpu", "3")
				p.Status.QOSClass = b
				return p
			}()},
			err: "preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: " +
				"[(res: cpu, q: 1000), ]",
		},
		{
			name: "unless the other is more so",
			pod:  func() *v1.Pod { p := critical("cpu", "2"); *p.Spec.Priority++; return p }(),
			others: []*v1.Pod{func() *v1.Pod {
				p := critical("cpu", "3")
				p.Name, p.Status.QOSClass = "low", b
				return p
			}()},
			want: "low",
		},
		{
			name:   "a pod that may be critical is not preempted",
			pod:    critical("cpu", "2"),
			others: []*v1.Pod{other("", b, "cpu", "3")},
			err: "preemption: error finding a set of pods to preempt: no set of running pods found to reclaim " +
				"resources: [(res: cpu, q: 1000), ]",
		},
		{
			name:   "no victims if they are not enough",
			pod:    critical("cpu", "2", "memory", "8Gi"),
			others: []*v1.Pod{other("a", b, "cpu", "4")},
			err: "preemption: error finding a set of pods to preempt: no set of running pods found to reclaim " +
				"resources: [(res: memory, q: 7516192768), ]",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Rules{}.Preempt(Input{
				Pod:         tc.pod,
				Others:      tc.others,
				Allocatable: list("cpu", "4", "memory", "1Gi", "pods", "5"),
			})
			var names []string
			for _, p := range got {
				names = append(names, p.Name)
			}
			if logged := strings.Join(names, " "); logged != tc.want ||
				(err != nil || tc.err != "") && fmt.Sprint(err) != tc.err {
				t.Errorf("%q, %v; want %q, %s", logged, err, tc.want, tc.err)
			}
		})
	}
}

func TestCriticalPodResourcesAreCheckedLast(t *testing.T) {
	parity.ProvesPart(t, 3, "EVIC-32")
	p := wants(map[string]string{"disk": "hdd"}, "")
	p.Spec.Priority = ptr.To[int32](2_000_000_000)
	p.Spec.Containers[0].Resources.Requests = list("cpu", "8")
	in := Input{
		Pod:         p,
		Node:        &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}},
		Allocatable: list("cpu", "2", "pods", "3"),
	}
	if got := (Rules{}).Admit(in); got == nil || got.Reason != "NodeAffinity" {
		t.Errorf("%+v: others would have to go for a pod that cannot come", got)
	}
}
