package inputs

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	v1beta1 "k8s.io/kubelet/config/v1beta1"

	"keelson/internal/config"
)

//go:embed testdata/configs
var configFiles embed.FS

// Configs generates command lines and the files they name, and compares how both
// kubelets read them.
type Configs struct {
	oracle *Oracle
	dir    string
	bases  []base
	words  map[string][]any
}

// configCase is everything from which one input is made.
type configCase struct {
	base    int // -1: no file
	changes []uint64
	dropIn  []uint64 // mutations of a drop-in of its own; nil for none
	flags   []uint64
	gates   []uint64 // feature gates: in the file, or on the command line
	scratch uint64
}

// NewConfigs reads the valid configurations. Files are written below dir.
func NewConfigs(o *Oracle, dir string) (*Configs, error) {
	c := &Configs{
		oracle: o,
		dir:    dir,
		words:  map[string][]any{},
	}
	v := &values{words: c.words}
	files, err := configFiles.ReadDir("testdata/configs")
	if err != nil {
		return nil, fmt.Errorf("list configurations: %w", err)
	}
	for _, f := range files {
		text, err := configFiles.ReadFile("testdata/configs/" + f.Name())
		if err != nil {
			return nil, fmt.Errorf("read configuration: %w", err)
		}
		b := base{
			name: f.Name(),
			text: text,
			typ:  reflect.TypeFor[v1beta1.KubeletConfiguration](),
		}
		c.bases = append(c.bases, b)
		v.learn(parse(text, b.typ).root, b.typ)
	}
	for _, g := range config.KnownGates().Sorted() {
		c.words["featureGates key"] = append(c.words["featureGates key"], g.Name)
	}
	return c, os.MkdirAll(filepath.Join(dir, "drop-ins"), 0o755)
}

func (c *Configs) draw(seed uint64, n int) configCase {
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	k := configCase{base: rng.IntN(len(c.bases)+1) - 1}
	some := func(most int) (out []uint64) {
		for range rng.IntN(most + 1) {
			out = append(out, rng.Uint64())
		}
		return out
	}
	if k.base >= 0 {
		k.changes = some(2)
		if rng.IntN(20) == 0 {
			k.changes, k.scratch = nil, rng.Uint64()|1
		}
		if rng.IntN(4) == 0 {
			k.dropIn = append(some(1), rng.Uint64())
		}
	}
	if k.base < 0 || rng.IntN(3) == 0 {
		k.flags = append(some(1), rng.Uint64())
	}
	if k.scratch == 0 && rng.IntN(4) == 0 {
		k.gates = append(some(1), rng.Uint64())
	}
	return k
}

// gate selects a gate and its setting, mostly one that can be set and that affects a kubelet's configuration.
func (c *Configs) gate(rng *rand.Rand) (name string, on bool) {
	if rng.IntN(2) == 0 {
		return pick(rng, settingGates), rng.IntN(2) == 0
	}
	name = pick(rng, c.words["featureGates key"]).(string)
	on = rng.IntN(2) == 0
	if g := config.KnownGates()[name]; g.Locked && rng.IntN(3) > 0 {
		on = g.Default
	}
	return name, on
}

// settingGates are the gates on which settings depend.
var settingGates = strings.Fields(`
	AllAlpha AllBeta CustomCPUCFSQuotaPeriod GracefulNodeShutdown GracefulNodeShutdownBasedOnPodPriority KubeletCrashLoopBackOffMax
	KubeletEnsureSecretPulledImages LoggingAlphaOptions LoggingBetaOptions MemoryQoS QOSReserved RotateKubeletServerCertificate
	WindowsGracefulNodeShutdown`)

// write writes the files of a case and returns its command line.
func (c *Configs) write(k configCase) (args, did []string, input string, err error) {
	dropIn, file := filepath.Join(c.dir, "drop-ins", "10.conf"), filepath.Join(c.dir, "config.yaml")
	if err := os.Remove(dropIn); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, "", fmt.Errorf("remove drop-in: %w", err)
	}
	put := func(path string, text []byte) error {
		input += "# " + filepath.Base(path) + "\n" + string(text) + "\n"
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return fmt.Errorf("write configuration: %w", err)
		}
		return nil
	}
	mutated := func(b base, seeds []uint64) *document {
		d := parse(b.text, b.typ)
		d.did = []string{b.name}
		for _, seed := range seeds {
			d.mutate(&values{
				rng:   rand.New(rand.NewPCG(seed, 0)),
				words: c.words,
			})
		}
		return d
	}
	var gates []string
	for _, seed := range k.gates {
		rng := rand.New(rand.NewPCG(seed, 0))
		name, on := c.gate(rng)
		if k.base < 0 || rng.IntN(4) == 0 {
			args = append(args, fmt.Sprintf("--feature-gates=%s=%v", name, on))
			continue
		}
		gates = append(gates, fmt.Sprintf("%s: %v", name, on))
	}
	if k.base >= 0 {
		d := mutated(c.bases[k.base], k.changes)
		for _, g := range gates {
			name, on, _ := strings.Cut(g, ": ")
			set, ok := d.root["featureGates"].(map[string]any)
			if !ok {
				set = map[string]any{}
				d.root["featureGates"] = set
			}
			set[name] = on == "true"
			d.did = append(d.did, "gate "+g)
		}
		text := d.text(false)
		if k.scratch != 0 {
			var what string
			text, what = scratch(rand.New(rand.NewPCG(k.scratch, 0)), text)
			d.did = append(d.did, what)
		}
		if err := put(file, text); err != nil {
			return nil, nil, "", err
		}
		args, did = append(args, "--config="+file), d.did
	}
	if k.dropIn != nil {
		empty := base{
			name: "drop-in",
			text: []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"),
			typ:  reflect.TypeFor[v1beta1.KubeletConfiguration](),
		}
		d := mutated(empty, nil)
		for _, seed := range k.dropIn {
			v := &values{
				rng:   rand.New(rand.NewPCG(seed, 0)),
				words: c.words,
			}
			d.setField(v, d.root, d.typ,
				func(format string, args ...any) { d.did = append(d.did, fmt.Sprintf(format, args...)) })
		}
		if err := put(dropIn, d.text(false)); err != nil {
			return nil, nil, "", err
		}
		args, did = append(args, "--config-dir="+filepath.Dir(dropIn)), append(did, d.did...)
	}
	for _, seed := range k.flags {
		args = append(args, c.flag(rand.New(rand.NewPCG(seed, 0))))
	}
	return args, append(did, args...), input, nil
}

// flag generates a flag with a value.
func (c *Configs) flag(rng *rand.Rand) string {
	names := slices.Clone(flagNames)
	name := pick(rng, names)
	v := &values{
		rng:   rng,
		words: c.words,
	}
	switch rng.IntN(6) {
	case 0:
		return fmt.Sprintf("--%s=%v", name, pick(rng, oddInts))
	case 1:
		return fmt.Sprintf("--%s=%v", name, pick(rng, []string{"true", "false", "", "1", "x"}))
	case 2:
		return fmt.Sprintf("--%s=%v", name,
			pick(rng,
				[]string{"a=b", "a=b,c=d", "cpu=100m", "memory.available<1Gi", "0:memory=1Gi", "a:b,c:d", "pods,none",
					"k=v:NoSchedule", "memory=50%", "AllAlpha=true", "node.kubernetes.io/x=y", "kubernetes.io/x=y"}))
	case 3:
		return fmt.Sprintf("--%s=%v", name, pick(rng, durations))
	}
	return fmt.Sprintf("--%s=%v", name, v.str(pick(rng, slices.Sorted(func(yield func(string) bool) {
		for w := range c.words {
			if !yield(w) {
				return
			}
		}
	}))))
}

// flagNames are all flags but those that name the configuration files, and those that only print something. The other
// files that flags name are not read in the comparison.
var flagNames = strings.Fields(`
	enable-server fail-swap-on pod-manifest-path sync-frequency file-check-frequency http-check-frequency manifest-url
	manifest-url-header address port read-only-port container-runtime-endpoint image-service-endpoint anonymous-auth
	authentication-token-webhook authentication-token-webhook-cache-ttl authorization-mode authorization-webhook-cache-authorized-ttl
	authorization-webhook-cache-unauthorized-ttl rotate-server-certificates tls-cipher-suites tls-min-version rotate-certificates
	registry-qps registry-burst event-qps event-burst enable-debugging-handlers contention-profiling healthz-port
	healthz-bind-address oom-score-adj cluster-domain volume-plugin-dir cluster-dns streaming-connection-idle-timeout
	node-status-update-frequency minimum-image-ttl-duration image-gc-high-threshold image-gc-low-threshold volume-stats-agg-period
	feature-gates kubelet-cgroups system-cgroups provider-id cgroups-per-qos cgroup-driver cgroup-root cpu-manager-policy
	cpu-manager-policy-options cpu-manager-reconcile-period qos-reserved topology-manager-policy runtime-request-timeout
	hairpin-mode max-pods pod-cidr pod-max-pids resolv-conf cpu-cfs-quota cpu-cfs-quota-period enable-controller-attach-detach
	make-iptables-util-chains container-log-max-size container-log-max-files allowed-unsafe-sysctls node-status-max-images
	kernel-memcg-notification local-storage-capacity-isolation max-open-files kube-api-content-type kube-api-qps kube-api-burst
	serialize-image-pulls eviction-hard eviction-soft eviction-soft-grace-period eviction-pressure-transition-period
	eviction-max-pod-grace-period eviction-minimum-reclaim pods-per-core protect-kernel-defaults reserved-cpus
	topology-manager-scope topology-manager-policy-options system-reserved kube-reserved enforce-node-allocatable
	system-reserved-cgroup kube-reserved-cgroup memory-manager-policy reserved-memory register-node register-with-taints
	logging-format v vmodule seccomp-default runonce runtime-cgroups hostname-override node-ip root-dir cert-dir cloud-provider
	node-labels lock-file exit-on-lock-contention minimum-container-ttl-duration maximum-dead-containers-per-container
	maximum-dead-containers experimental-mounter-path experimental-allocatable-ignore-eviction
	kubeconfig bootstrap-kubeconfig client-ca-file tls-cert-file tls-private-key-file image-credential-provider-config
	image-credential-provider-bin-dir fail-cgroupv1 log-flush-frequency log-text-split-stream log-text-info-buffer-size
	log-json-split-stream log-json-info-buffer-size housekeeping-interval application-metrics-count-limit boot-id-file
	container-hints containerd containerd-namespace enable-load-reader event-storage-age-limit event-storage-event-limit
	global-housekeeping-interval log-cadvisor-usage machine-id-file storage-driver-user storage-driver-password
	storage-driver-host storage-driver-db storage-driver-table storage-driver-secure storage-driver-buffer-duration`)

// Try compares one input. It returns nil when both kubelets agree.
func (c *Configs) Try(seed uint64, n int) (*Difference, error) {
	k := c.draw(seed, n)
	d, err := c.try(k)
	if d == nil || err != nil {
		return nil, err
	}
	for _, less := range []func(*configCase) *[]uint64{
		func(k *configCase) *[]uint64 { return &k.changes },
		func(k *configCase) *[]uint64 { return &k.dropIn },
		func(k *configCase) *[]uint64 { return &k.flags },
		func(k *configCase) *[]uint64 { return &k.gates },
	} {
		for i := 0; i < len(*less(&k)); {
			smaller := k
			list := less(&smaller)
			if *list = slices.Delete(slices.Clone(*list), i, i+1); len(*list) == 0 {
				*list = nil
			}
			found, err := c.try(smaller)
			if err != nil {
				return nil, err
			}
			if found == nil {
				i++
				continue
			}
			k, d = smaller, found
		}
	}
	d.Seed, d.Number = seed, n
	return d, nil
}

func (c *Configs) try(k configCase) (*Difference, error) {
	args, did, input, err := c.write(k)
	if err != nil {
		return nil, err
	}
	return c.compare(args, did, input)
}

// compare compares how both kubelets read a command line. The files that it names exist.
func (c *Configs) compare(args, did []string, input string) (*Difference, error) {
	theirs, err := c.oracle.Ask(Question{Config: &ConfigQuestion{Args: args}})
	if err != nil {
		return nil, err
	}
	d := &Difference{
		Input:  strings.Join(args, " ") + "\n" + input,
		Did:    did,
		Theirs: theirs.Refused,
	}
	ours, err := load(args)
	if err != nil {
		d.Ours = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	switch {
	case (d.Ours == "") != (d.Theirs == ""):
		return d, nil
	case d.Ours != "":
		return nil, nil
	}
	shown, err := json.Marshal(ours.Configz(&ours.Kubelet, ours.Kubelet.CgroupDriver))
	if err != nil {
		return nil, fmt.Errorf("encode configuration: %w", err)
	}
	d.Changed = compare(shown, theirs.Kubelet)
	for name, on := range theirs.Gates {
		if g, ok := ours.Gates[name]; ok && g.Enabled != on {
			d.Changed = append(d.Changed, fmt.Sprintf("gate %s: ours %v, upstream's %v", name, g.Enabled, on))
		}
	}
	for name, value := range theirs.Flags {
		if is := flagText(value); is != ours.CommandLine[name] {
			d.Changed = append(d.Changed, fmt.Sprintf("--%s: ours %s, upstream's %s", name, ours.CommandLine[name], is))
		}
	}
	slices.Sort(d.Changed)
	if len(d.Changed) == 0 {
		return nil, nil
	}
	return d, nil
}

// flagText is the value of a flag as a command line shows it.
func flagText(v any) string {
	if n, ok := v.(float64); ok {
		return strconv.FormatFloat(n, 'f', -1, 64)
	}
	m, ok := v.(map[string]any)
	if !ok {
		return fmt.Sprint(v)
	}
	var pairs []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		pairs = append(pairs, fmt.Sprintf("%s=%v", k, m[k]))
	}
	return strings.Join(pairs, ",")
}

// load returns the configuration that this kubelet reads from a command line. A panic counts as an error.
func load(args []string) (c *config.Config, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("PANIC: %v", r)
		}
	}()
	return config.Load(args)
}
