package config

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	cliflag "k8s.io/component-base/cli/flag"
	v1beta1 "k8s.io/kubelet/config/v1beta1"
	kubeletapis "k8s.io/kubelet/pkg/apis"
	netutils "k8s.io/utils/net"
)

// checker collects problems, and notes about values that are allowed but discouraged.
type checker struct {
	problems Problems
	notes    []string
}

func (c *checker) bad(field string, value any, format string, args ...any) {
	c.problems = append(c.problems, Problem{Field: field, Value: value, Why: fmt.Sprintf(format, args...)})
}

func (c *checker) need(ok bool, field string, value any, format string, args ...any) {
	if !ok {
		c.bad(field, value, format, args...)
	}
}

func (c *checker) positive(field string, d metav1.Duration) {
	c.need(d.Duration > 0, field, d.Duration, "must be greater than 0")
}

func (c *checker) notNegative(field string, v int64) {
	c.need(v >= 0, field, v, "must not be negative")
}

func (c *checker) oneOf(field, value string, allowed ...string) {
	c.need(slices.Contains(allowed, value), field, value, "must be one of %s", strings.Join(allowed, ", "))
}

func (c *checker) between(field string, v, low, high int64) {
	c.need(low <= v && v <= high, field, v, "must be between %d and %d", low, high)
}

// validate finds all problems of the configuration in one pass.
func validate(cfg *Config) (Problems, []string) {
	c := &checker{}
	k := &cfg.Kubelet
	c.serving(k)
	c.frequencies(k, cfg.Gates)
	c.resources(k, cfg.Gates)
	c.images(k, cfg.Gates)
	c.evictions(k)
	c.shutdown(k, cfg.Gates)
	c.managers(k, cfg.Gates)
	c.logging(k, cfg.Gates)
	c.hiddenMetrics(k.ShowHiddenMetricsForVersion)
	c.rest(k, cfg.Gates)
	c.flags(&cfg.Flags)
	c.standalone(cfg)
	return c.problems, c.notes
}

func (c *checker) serving(k *v1beta1.KubeletConfiguration) {
	c.need(net.ParseIP(k.Address) != nil, "address", k.Address, "must be an IP address")
	c.need(net.ParseIP(k.HealthzBindAddress) != nil, "healthzBindAddress", k.HealthzBindAddress,
		"must be an IP address")
	c.between("port", int64(k.Port), 1, 65535)
	c.between("readOnlyPort", int64(k.ReadOnlyPort), 0, 65535)
	c.between("healthzPort", int64(*k.HealthzPort), 0, 65535)
	c.oneOf("authorization.mode", string(k.Authorization.Mode), "AlwaysAllow", "Webhook")
	c.need((k.TLSCertFile == "") == (k.TLSPrivateKeyFile == ""), "tlsCertFile", k.TLSCertFile,
		"and tlsPrivateKeyFile must be set together")
	if _, err := cliflag.TLSVersion(k.TLSMinVersion); err != nil {
		c.bad("tlsMinVersion", k.TLSMinVersion, "must be one of %s", strings.Join(cliflag.TLSPossibleVersions(), ", "))
	}
	for i, suite := range k.TLSCipherSuites {
		if _, err := cliflag.TLSCipherSuites([]string{suite}); err != nil {
			c.bad(fmt.Sprintf("tlsCipherSuites[%d]", i), suite, "is not a cipher suite of this program; known are %s",
				strings.Join(cliflag.TLSCipherPossibleValues(), ", "))
		}
		if _, insecure := cliflag.InsecureTLSCiphers()[suite]; insecure {
			c.notes = append(c.notes, fmt.Sprintf("Use of insecure cipher %q detected.", suite))
		}
	}
	const rsa, ecdsa = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
	if list := k.TLSCipherSuites; len(list) > 0 && k.TLSMinVersion != "VersionTLS13" && !slices.Contains(list, rsa) &&
		!slices.Contains(list, ecdsa) && *k.EnableServer {
		c.bad("tlsCipherSuites", strings.Join(list, ","), "must hold %s or %s, which HTTP/2 requires", rsa, ecdsa)
	}
	if k.TLSMinVersion == "VersionTLS13" && len(k.TLSCipherSuites) > 0 {
		c.notes = append(c.notes, "tlsCipherSuites is ignored: the suites of VersionTLS13 cannot be configured")
	}
	if _, err := cliflag.TLSCurvePreferences(k.TLSCurvePreferences); err != nil {
		c.bad("tlsCurvePreferences", k.TLSCurvePreferences, "has an unknown curve: %v", err)
	}
	c.need(!*k.EnableSystemLogQuery || *k.EnableSystemLogHandler, "enableSystemLogQuery", true,
		"needs enableSystemLogHandler")
}

// hiddenMetrics validates showHiddenMetricsForVersion. It has no effect: this release
// hides no metrics.
func (c *checker) hiddenMetrics(release string) {
	c.need(release == "" || release == lastRelease(), "showHiddenMetricsForVersion", release,
		"must be omitted or have the value '%s'; only the previous minor version is allowed", lastRelease())
}

func (c *checker) frequencies(k *v1beta1.KubeletConfiguration, gates Gates) {
	c.positive("syncFrequency", k.SyncFrequency)
	c.positive("fileCheckFrequency", k.FileCheckFrequency)
	c.positive("httpCheckFrequency", k.HTTPCheckFrequency)
	c.positive("nodeStatusUpdateFrequency", k.NodeStatusUpdateFrequency)
	c.positive("nodeStatusReportFrequency", k.NodeStatusReportFrequency)
	c.positive("runtimeRequestTimeout", k.RuntimeRequestTimeout)
	c.need(k.NodeLeaseDurationSeconds > 0, "nodeLeaseDurationSeconds",
		k.NodeLeaseDurationSeconds, "must be greater than 0")
	c.notNegative("eventRecordQPS", int64(*k.EventRecordQPS))
	c.notNegative("eventBurst", int64(k.EventBurst))
	c.notNegative("kubeAPIQPS", int64(*k.KubeAPIQPS))
	c.notNegative("kubeAPIBurst", int64(k.KubeAPIBurst))
	c.backOff(k, gates)
}

func (c *checker) backOff(k *v1beta1.KubeletConfiguration, gates Gates) {
	const field = "crashLoopBackOff.maxContainerRestartPeriod"
	longest := k.CrashLoopBackOff.MaxContainerRestartPeriod
	switch on := gates.Enabled("KubeletCrashLoopBackOffMax"); {
	case !on && longest != nil:
		c.bad(field, longest.Duration, "must not be set while the gate KubeletCrashLoopBackOffMax is off")
	case on && longest == nil:
		c.bad(field, nil, "must be set while the gate KubeletCrashLoopBackOffMax is on")
	case on:
		d := longest.Duration.Truncate(time.Millisecond)
		c.need(time.Second <= d && d <= 5*time.Minute, field, longest.Duration, "must be between 1s and 300s")
	}
}

// reservable are the resources that can be reserved.
var reservable = []string{"cpu", "memory", "ephemeral-storage", "pid"}

func (c *checker) resources(k *v1beta1.KubeletConfiguration, gates Gates) {
	for field, m := range map[string]map[string]string{
		"systemReserved": k.SystemReserved,
		"kubeReserved":   k.KubeReserved,
	} {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			at := field + "." + name
			if !slices.Contains(reservable, name) {
				c.bad(at, m[name], "cannot reserve %s; only %s", name, strings.Join(reservable, ", "))
				continue
			}
			q, err := resource.ParseQuantity(m[name])
			if err != nil {
				c.bad(at, m[name], "must be a quantity: %v", err)
				continue
			}
			c.need(q.Sign() >= 0, at, m[name], "must not be negative")
		}
	}
	c.enforcement(k)
	c.need(k.SystemCgroups != "/", "systemCgroups", k.SystemCgroups, "must not be the root cgroup")
	c.oneOf("cgroupDriver", k.CgroupDriver, "cgroupfs", "systemd")
	period := k.CPUCFSQuotaPeriod.Duration
	if gates.Enabled("CustomCPUCFSQuotaPeriod") {
		c.need(time.Millisecond <= period && period <= time.Second, "cpuCFSQuotaPeriod", period,
			"must be between 1ms and 1s")
	} else {
		c.need(period == 100*time.Millisecond, "cpuCFSQuotaPeriod", period,
			"must be 100ms while the gate CustomCPUCFSQuotaPeriod is off")
	}
	c.between("oomScoreAdj", int64(*k.OOMScoreAdj), -1000, 1000)
	c.notNegative("maxPods", int64(k.MaxPods))
	c.notNegative("podsPerCore", int64(k.PodsPerCore))
	c.notNegative("maxOpenFiles", k.MaxOpenFiles)
	c.need(*k.NodeStatusMaxImages >= -1, "nodeStatusMaxImages", *k.NodeStatusMaxImages, "must be -1 or more")
	if f := *k.MemoryThrottlingFactor; f <= 0 || f > 1 {
		c.bad("memoryThrottlingFactor", f, "must be greater than 0 and at most 1")
	}
	c.oneOf("memoryReservationPolicy", string(k.MemoryReservationPolicy), "None", "TieredReservation")
	c.need(k.MemoryReservationPolicy != v1beta1.TieredReservationMemoryReservationPolicy || gates.Enabled("MemoryQoS"),
		"memoryReservationPolicy", string(k.MemoryReservationPolicy), "needs the gate MemoryQoS")
	c.oneOf("memorySwap.swapBehavior", k.MemorySwap.SwapBehavior, "", "NoSwap", "LimitedSwap")
	if k.UserNamespaces != nil && k.UserNamespaces.IDsPerPod != nil {
		n := *k.UserNamespaces.IDsPerPod
		c.need(n > 0 && n%65536 == 0 && n < 1<<32, "userNamespaces.idsPerPod", n,
			"must be a multiple of 65536 below 2^32")
	}
	type kept struct {
		node int32
		kind v1.ResourceName
	}
	seen := map[kept]bool{}
	for i, m := range k.ReservedMemory {
		at := fmt.Sprintf("reservedMemory[%d]", i)
		c.need(m.NumaNode >= 0, at+".numaNode", m.NumaNode, "must not be negative")
		c.need(len(m.Limits) > 0, at+".limits", nil, "must name at least one kind of memory")
		for _, name := range slices.Sorted(maps.Keys(m.Limits)) {
			q := m.Limits[name]
			kind := name == v1.ResourceMemory || strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
			c.need(kind, at+".limits."+string(name), q.String(), "the kind must be memory or hugepages-<size>")
			c.need(q.Sign() > 0, at+".limits."+string(name), q.String(), "must be greater than 0")
			c.need(!seen[kept{m.NumaNode, name}], at+".limits."+string(name), q.String(),
				"is named twice for NUMA node %d", m.NumaNode)
			seen[kept{m.NumaNode, name}] = true
		}
	}
}

// enforcement validates enforceNodeAllocatable and its cgroups.
func (c *checker) enforcement(k *v1beta1.KubeletConfiguration) {
	const field = "enforceNodeAllocatable"
	has := func(s string) bool { return slices.Contains(k.EnforceNodeAllocatable, s) }
	for _, v := range k.EnforceNodeAllocatable {
		c.oneOf(field, v, "none", "pods", "system-reserved", "system-reserved-compressible", "kube-reserved",
			"kube-reserved-compressible")
	}
	c.need(len(slices.Compact(slices.Sorted(slices.Values(k.EnforceNodeAllocatable)))) == len(k.EnforceNodeAllocatable),
		field, k.EnforceNodeAllocatable, "must not name anything twice")
	c.need(!has("none") || len(k.EnforceNodeAllocatable) == 1, field, k.EnforceNodeAllocatable,
		"must not name anything beside none")
	for _, kind := range []struct{ name, field, cgroup string }{
		{"system-reserved", "systemReservedCgroup", k.SystemReservedCgroup},
		{"kube-reserved", "kubeReservedCgroup", k.KubeReservedCgroup},
	} {
		plain, compressible := has(kind.name), has(kind.name+"-compressible")
		c.need(!plain || !compressible, field, k.EnforceNodeAllocatable,
			"must not name both %s and %s-compressible", kind.name, kind.name)
		c.need(!plain && !compressible || kind.cgroup != "", kind.field, nil, "must be set when %s is enforced",
			kind.name)
		c.need(kind.cgroup == "" || k.ReservedSystemCPUs == "", "reservedSystemCPUs", k.ReservedSystemCPUs,
			"cannot be combined with %s", kind.field)
	}
	enforced := len(k.EnforceNodeAllocatable) > 0 && !has("none")
	c.need(!enforced || *k.CgroupsPerQOS, field, k.EnforceNodeAllocatable, "needs cgroupsPerQOS")
	if k.ReservedSystemCPUs != "" {
		c.need(isCPUList(k.ReservedSystemCPUs), "reservedSystemCPUs", k.ReservedSystemCPUs,
			"must be a list of CPUs such as 0-1,4")
	}
}

// CountCPUs returns the number of CPUs in a list such as 0-1,4.
func CountCPUs(list string) int {
	set := map[uint64]bool{}
	for part := range strings.SplitSeq(list, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		from, errFrom := strconv.ParseUint(low, 10, 16)
		to, errTo := strconv.ParseUint(high, 10, 16)
		for cpu := from; errFrom == nil && errTo == nil && cpu <= to; cpu++ {
			set[cpu] = true
		}
	}
	return len(set)
}

func isCPUList(s string) bool {
	for part := range strings.SplitSeq(s, ",") {
		low, high, isRange := strings.Cut(part, "-")
		a, err := strconv.ParseUint(low, 10, 16)
		if err != nil {
			return false
		}
		if !isRange {
			continue
		}
		if b, err := strconv.ParseUint(high, 10, 16); err != nil || b < a {
			return false
		}
	}
	return true
}

func (c *checker) images(k *v1beta1.KubeletConfiguration, gates Gates) {
	high, low := *k.ImageGCHighThresholdPercent, *k.ImageGCLowThresholdPercent
	c.between("imageGCHighThresholdPercent", int64(high), 0, 100)
	c.between("imageGCLowThresholdPercent", int64(low), 0, 100)
	c.need(low < high, "imageGCLowThresholdPercent", low, "must be less than imageGCHighThresholdPercent, %d", high)
	least, most := k.ImageMinimumGCAge.Duration, k.ImageMaximumGCAge.Duration
	c.need(least >= 0, "imageMinimumGCAge", least, "must not be negative")
	c.need(most >= 0, "imageMaximumGCAge", most, "must not be negative")
	c.need(most <= 0 || most > least, "imageMaximumGCAge", most, "must be greater than imageMinimumGCAge, %v", least)
	c.notNegative("registryPullQPS", int64(*k.RegistryPullQPS))
	c.notNegative("registryBurst", int64(k.RegistryBurst))
	if n := k.MaxParallelImagePulls; n != nil {
		c.need(*n >= 1, "maxParallelImagePulls", *n, "must be at least 1")
		c.need(*n <= 1 || !*k.SerializeImagePulls, "maxParallelImagePulls", *n,
			"must be 1 while serializeImagePulls is true")
	}

	policy := k.ImagePullCredentialsVerificationPolicy
	const field = "imagePullCredentialsVerificationPolicy"
	if !gates.Enabled("KubeletEnsureSecretPulledImages") {
		const why = "must not be set while the gate KubeletEnsureSecretPulledImages is off"
		c.need(policy == "", field, string(policy), why)
		c.need(len(k.PreloadedImagesVerificationAllowlist) == 0, "preloadedImagesVerificationAllowlist",
			k.PreloadedImagesVerificationAllowlist, why)
		return
	}
	c.oneOf(field, string(policy), "NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages",
		"AlwaysVerify")
	list := k.PreloadedImagesVerificationAllowlist
	c.need(len(list) == 0 || policy == v1beta1.NeverVerifyAllowlistedImages,
		"preloadedImagesVerificationAllowlist", list, "is only allowed with %s NeverVerifyAllowlistedImages", field)
	for i, image := range list {
		c.need(isImagePattern(image), fmt.Sprintf("preloadedImagesVerificationAllowlist[%d]", i), image,
			"must be an image without tag or digest, or a prefix ending in /*")
	}
}

// isImagePattern reports whether a text is a prefix of images that ends in /*, or
// the name of an image.
func isImagePattern(s string) bool {
	if prefix, ok := strings.CutSuffix(s, "/*"); ok {
		return prefix != "" && strings.TrimSpace(s) == s && !strings.Contains(prefix, "*")
	}
	ref, err := reference.Parse(s)
	_, tagged := ref.(reference.Tagged)
	_, digested := ref.(reference.Digested)
	return err == nil && !tagged && !digested
}

// evictionSignals are the signals that can have a threshold.
var evictionSignals = []string{
	"memory.available", "allocatableMemory.available", "nodefs.available", "nodefs.inodesFree",
	"imagefs.available", "imagefs.inodesFree", "containerfs.available", "containerfs.inodesFree", "pid.available",
}

func (c *checker) evictions(k *v1beta1.KubeletConfiguration) {
	amounts := func(field string, m map[string]string) {
		for _, signal := range slices.Sorted(maps.Keys(m)) {
			at := field + "." + signal
			if !slices.Contains(evictionSignals, signal) {
				c.bad(at, m[signal], "unknown signal; known are %s", strings.Join(evictionSignals, ", "))
				continue
			}
			if why := badAmount(m[signal]); why != "" {
				c.bad(at, m[signal], "%s", why)
			}
		}
	}
	amounts("evictionHard", k.EvictionHard)
	amounts("evictionSoft", k.EvictionSoft)
	amounts("evictionMinimumReclaim", k.EvictionMinimumReclaim)
	for _, signal := range slices.Sorted(maps.Keys(k.EvictionSoft)) {
		_, ok := k.EvictionSoftGracePeriod[signal]
		c.need(ok, "evictionSoft."+signal, k.EvictionSoft[signal], "needs an entry in evictionSoftGracePeriod")
	}
	for _, signal := range slices.Sorted(maps.Keys(k.EvictionSoftGracePeriod)) {
		at, text := "evictionSoftGracePeriod."+signal, k.EvictionSoftGracePeriod[signal]
		c.need(slices.Contains(evictionSignals, signal), at, text, "unknown signal; known are %s",
			strings.Join(evictionSignals, ", "))
		d, err := time.ParseDuration(text)
		c.need(err == nil && d >= 0, at, text, "must be a duration such as 1m30s, and not negative")
	}
	c.need(k.EvictionPressureTransitionPeriod.Duration >= 0, "evictionPressureTransitionPeriod",
		k.EvictionPressureTransitionPeriod.Duration, "must not be negative")
}

// badAmount returns why a threshold is neither a quantity nor a percentage; "" if it is.
func badAmount(s string) string {
	if p, ok := strings.CutSuffix(s, "%"); ok {
		f, err := strconv.ParseFloat(p, 64)
		if err != nil || f < 0 || f > 100 {
			return "must be a percentage between 0% and 100%"
		}
		return ""
	}
	q, err := resource.ParseQuantity(s)
	if err != nil {
		return "must be a quantity such as 100Mi, or a percentage"
	}
	if q.Sign() < 0 {
		return "must not be negative"
	}
	return ""
}

func (c *checker) shutdown(k *v1beta1.KubeletConfiguration, gates Gates) {
	total, critical := k.ShutdownGracePeriod.Duration, k.ShutdownGracePeriodCriticalPods.Duration
	c.need(total == 0 && critical == 0 || gates.Enabled("GracefulNodeShutdown"), "shutdownGracePeriod", total,
		"needs the gate GracefulNodeShutdown")
	c.need(total == 0 || total >= time.Second, "shutdownGracePeriod", total, "must be 0 or at least 1s")
	c.need(critical == 0 || critical >= time.Second, "shutdownGracePeriodCriticalPods",
		critical, "must be 0 or at least 1s")
	c.need(critical <= total, "shutdownGracePeriodCriticalPods", critical,
		"must be at most shutdownGracePeriod, %v", total)
	if len(k.ShutdownGracePeriodByPodPriority) == 0 {
		return
	}
	c.need(gates.Enabled("GracefulNodeShutdownBasedOnPodPriority"), "shutdownGracePeriodByPodPriority", nil,
		"needs the gate GracefulNodeShutdownBasedOnPodPriority")
	c.need(total == 0 && critical == 0, "shutdownGracePeriodByPodPriority", nil,
		"cannot be combined with shutdownGracePeriod and shutdownGracePeriodCriticalPods")
	seen := map[int32]bool{}
	for i, p := range k.ShutdownGracePeriodByPodPriority {
		at := fmt.Sprintf("shutdownGracePeriodByPodPriority[%d]", i)
		c.need(!seen[p.Priority], at+".priority", p.Priority, "is named twice")
		c.notNegative(at+".shutdownGracePeriodSeconds", p.ShutdownGracePeriodSeconds)
		seen[p.Priority] = true
	}
}

func (c *checker) managers(k *v1beta1.KubeletConfiguration, gates Gates) {
	c.oneOf("cpuManagerPolicy", k.CPUManagerPolicy, "none", "static")
	c.oneOf("memoryManagerPolicy", k.MemoryManagerPolicy, "None", "Static")
	c.oneOf("topologyManagerPolicy", k.TopologyManagerPolicy, "none", "best-effort", "restricted", "single-numa-node")
	c.oneOf("topologyManagerScope", k.TopologyManagerScope, "container", "pod")
	c.need(len(k.QOSReserved) == 0 || gates.Enabled("QOSReserved"), "qosReserved", nil, "needs the gate QOSReserved")
	for _, name := range slices.Sorted(maps.Keys(k.QOSReserved)) {
		share, percent := strings.CutSuffix(k.QOSReserved[name], "%")
		n, err := strconv.Atoi(share)
		c.need(name == "memory" && percent && err == nil && 0 <= n && n <= 100, "qosReserved."+name,
			k.QOSReserved[name],
			"must be a percentage of memory between 0%% and 100%%")
	}
}

func (c *checker) logging(k *v1beta1.KubeletConfiguration, gates Gates) {
	l := &k.Logging
	c.oneOf("logging.format", l.Format, "text", "json")
	c.need(l.Format != "json" || gates.Enabled("LoggingBetaOptions"), "logging.format", l.Format,
		"needs the gate LoggingBetaOptions")
	c.need(l.FlushFrequency.Duration.Duration > 0, "logging.flushFrequency",
		l.FlushFrequency.Duration.Duration, "must be greater than 0")
	c.need(l.Verbosity <= 1<<31-1, "logging.verbosity", uint32(l.Verbosity), "must be at most 2147483647")
	c.need(len(l.VModule) == 0 || l.Format == "text", "logging.vmodule", nil, "is only supported for the text format")
	for i, m := range l.VModule {
		c.need(m.FilePattern != "" && !strings.ContainsAny(m.FilePattern, "=,"),
			fmt.Sprintf("logging.vmodule[%d].filePattern", i), m.FilePattern, "must not be empty nor contain = or ,")
	}
	if gates.Enabled("LoggingAlphaOptions") {
		return
	}
	for at, split := range map[string]bool{
		"logging.options.text.splitStream": l.Options.Text.SplitStream,
		"logging.options.json.splitStream": l.Options.JSON.SplitStream,
	} {
		c.need(!split, at, true, "needs the gate LoggingAlphaOptions")
	}
	for at, size := range map[string]int64{
		"logging.options.text.infoBufferSize": l.Options.Text.InfoBufferSize.Value(),
		"logging.options.json.infoBufferSize": l.Options.JSON.InfoBufferSize.Value(),
	} {
		c.need(size == 0, at, size, "needs the gate LoggingAlphaOptions")
	}
}

// namespacedSysctls are the groups of sysctls that the kernel namespaces.
var namespacedSysctls = []string{"kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.", "net."}

var sysctlPattern = regexp.MustCompile(`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*([a-z0-9][-_a-z0-9]*)?[a-z0-9*]$`)

func (c *checker) rest(k *v1beta1.KubeletConfiguration, gates Gates) {
	c.need(!k.RunOnce, "runOnce", true, "is not supported")
	c.oneOf("hairpinMode", k.HairpinMode, v1beta1.PromiscuousBridge, v1beta1.HairpinVeth, v1beta1.HairpinNone)
	c.between("iptablesMasqueradeBit", int64(*k.IPTablesMasqueradeBit), 0, 31)
	c.between("iptablesDropBit", int64(*k.IPTablesDropBit), 0, 31)
	c.oneOf("configMapAndSecretChangeDetectionStrategy", string(k.ConfigMapAndSecretChangeDetectionStrategy),
		"Get", "Cache", "Watch")
	c.need(!k.ServerTLSBootstrap || gates.Enabled("RotateKubeletServerCertificate"), "serverTLSBootstrap", true,
		"needs the gate RotateKubeletServerCertificate")
	c.need(k.ContainerRuntimeEndpoint != "", "containerRuntimeEndpoint", nil, "must be set")

	dir := k.PodLogsDir
	ascii := strings.IndexFunc(dir, func(r rune) bool { return r > 127 }) < 0
	c.need(path.IsAbs(dir) && path.Clean(dir) == dir && ascii, "podLogsDir", dir,
		"must be an absolute, clean path of ASCII characters")
	if q, err := resource.ParseQuantity(k.ContainerLogMaxSize); err != nil {
		c.bad("containerLogMaxSize", k.ContainerLogMaxSize, "must be a quantity such as 10Mi")
	} else if _, whole := q.AsInt64(); !whole {
		c.bad("containerLogMaxSize", k.ContainerLogMaxSize, "must be a whole number of bytes")
	}
	c.need(*k.ContainerLogMaxFiles > 1, "containerLogMaxFiles", *k.ContainerLogMaxFiles, "must be greater than 1")
	c.need(*k.ContainerLogMaxWorkers >= 1, "containerLogMaxWorkers", *k.ContainerLogMaxWorkers, "must be at least 1")
	c.need(k.ContainerLogMonitorInterval.Duration >= 3*time.Second, "containerLogMonitorInterval",
		k.ContainerLogMonitorInterval.Duration, "must be at least 3s")

	for i, s := range k.AllowedUnsafeSysctls {
		group := slices.ContainsFunc(namespacedSysctls, func(p string) bool {
			return strings.HasPrefix(strings.ReplaceAll(s, "/", "."), p)
		})
		c.need(group && sysctlPattern.MatchString(s) && len(s) <= 253, fmt.Sprintf("allowedUnsafeSysctls[%d]", i), s,
			"must be a namespaced sysctl (%s*), and may end in *",
			strings.Join(namespacedSysctls, "*, "))
	}
	for i, t := range k.RegisterWithTaints {
		at := fmt.Sprintf("registerWithTaints[%d]", i)
		for _, why := range validation.IsQualifiedName(t.Key) {
			c.bad(at+".key", t.Key, "%s", why)
		}
		for _, why := range validation.IsValidLabelValue(t.Value) {
			c.bad(at+".value", t.Value, "%s", why)
		}
		c.oneOf(at+".effect", string(t.Effect), "NoSchedule", "PreferNoSchedule", "NoExecute")
		c.need(t.TimeAdded == nil, at+".timeAdded", nil, "must not be set")
	}
	if k.Tracing != nil && k.Tracing.Endpoint != nil {
		_, err := url.Parse("dns://" + *k.Tracing.Endpoint)
		c.need(err == nil, "tracing.endpoint", *k.Tracing.Endpoint, "must be the host and port of a collector")
	}
	if k.Tracing != nil && k.Tracing.SamplingRatePerMillion != nil {
		c.between("tracing.samplingRatePerMillion", int64(*k.Tracing.SamplingRatePerMillion), 0, 1000000)
	}
}

func (c *checker) flags(f *Flags) {
	c.need(f.CloudProvider == "" || f.CloudProvider == "external", "--cloud-provider", f.CloudProvider,
		"must be empty or external: cloud providers are not built in")
	c.need(f.LeastEndedAge >= 0, "--minimum-container-ttl-duration", f.LeastEndedAge, "must not be negative")
	c.need(!f.ExitOnLock || f.LockFile != "", "--exit-on-lock-contention", true, "needs --lock-file")
	c.need(filepath.IsAbs(f.RootDir), "--root-dir", f.RootDir, "must be an absolute path")
	c.need(f.ImageCredentialProviderConfig == "" || f.ImageCredentialProviderBinDir != "",
		"--image-credential-provider-bin-dir", nil, "must be set with --image-credential-provider-config")
	var foreign []string
	for _, key := range slices.Sorted(maps.Keys(f.NodeLabels)) {
		for _, why := range validation.IsQualifiedName(key) {
			c.bad("--node-labels", key, "%s", why)
		}
		for _, why := range validation.IsValidLabelValue(f.NodeLabels[key]) {
			c.bad("--node-labels", key+"="+f.NodeLabels[key], "%s", why)
		}
		if ns, _, ok := strings.Cut(key, "/"); ok && isKubernetes(ns) && !kubeletapis.IsKubeletLabel(key) {
			foreign = append(foreign, key)
		}
	}
	if len(foreign) > 0 {
		c.bad("--node-labels", nil,
			"unknown 'kubernetes.io' or 'k8s.io' labels specified: %v; such a label must begin with an allowed prefix "+
				"(%s) or be in the specifically allowed set (%s)",
			foreign, strings.Join(kubeletapis.KubeletLabelNamespaces(), ", "),
			strings.Join(kubeletapis.KubeletLabels(), ", "))
	}
	if _, _, err := parseNodeIPs(f.NodeIP); err != nil {
		c.bad("--node-ip", f.NodeIP, "%v", err)
	}
}

func isKubernetes(ns string) bool {
	for _, domain := range []string{"kubernetes.io", "k8s.io"} {
		if ns == domain || strings.HasSuffix(ns, "."+domain) {
			return true
		}
	}
	return false
}

// standalone refuses settings that need an API server.
func (c *checker) standalone(cfg *Config) {
	if !cfg.Standalone() {
		return
	}
	const why = "needs an API server: give --kubeconfig, or set %s"
	c.need(!*cfg.Kubelet.Authentication.Webhook.Enabled, "authentication.webhook.enabled", true, why, "it to false")
	c.need(cfg.Kubelet.Authorization.Mode != v1beta1.KubeletAuthorizationModeWebhook, "authorization.mode",
		"Webhook", why, "AlwaysAllow")
}

// NodeIPs returns the addresses of --node-ip, and the parts that are ignored.
func (c *Config) NodeIPs() (ips []netip.Addr, ignored []string) {
	ips, ignored, err := parseNodeIPs(c.Flags.NodeIP)
	if err != nil {
		return nil, ignored // validation refuses it
	}
	return ips, ignored
}

func parseNodeIPs(s string) (ips []netip.Addr, ignored []string, err error) {
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		ip, ok := netip.AddrFromSlice(netutils.ParseIPSloppy(part)) // with leading zeros too, and without zones
		if !ok {
			ignored = append(ignored, part)
			continue
		}
		ips = append(ips, ip.Unmap())
	}
	switch {
	case len(ips) > 2, len(ips) == 2 && ips[0].Is4() == ips[1].Is4():
		return nil, ignored, fmt.Errorf("must contain either a single IP or a dual-stack pair of IPs")
	case len(ips) == 2 && (ips[0].IsUnspecified() || ips[1].IsUnspecified()):
		return nil, ignored, fmt.Errorf("a dual-stack pair must not have an unspecified address")
	}
	return ips, ignored, nil
}
