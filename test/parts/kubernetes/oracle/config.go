package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	cloudprovider "k8s.io/cloud-provider"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	nodeutil "k8s.io/component-helpers/node/util"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	kubeletscheme "k8s.io/kubernetes/pkg/kubelet/apis/config/scheme"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/validation"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/eviction"
	"k8s.io/kubernetes/pkg/kubelet/sysctl"
	"k8s.io/utils/cpuset"
)

// settings is a command line. The files that it names are on the disk.
type settings struct {
	Args []string `json:"args"`
}

// ask returns the configuration with which upstream starts for the command line. certs is a folder for the certificate
// that upstream may make.
func (s settings) ask(certs string) (a answer) {
	defer func() {
		if r := recover(); r != nil {
			a = answer{
				Refused: fmt.Sprintf("panic: %v", r),
				Stage:   "exit",
			}
		}
	}()
	flags, config, stage, err := load(s.Args)
	if err != nil {
		return answer{Refused: err.Error(), Stage: stage}
	}
	if err := serving(flags, config, certs); err != nil {
		return answer{Refused: err.Error(), Stage: "start"}
	}
	shown, err := configz(config)
	if err != nil {
		return answer{Refused: err.Error(), Stage: "start"}
	}
	if err := start(flags, config); err != nil {
		return answer{Refused: err.Error(), Stage: "start"}
	}
	a = answer{Flags: native(flags), Gates: map[string]bool{}}
	if a.Kubelet, err = json.Marshal(shown); err != nil {
		return answer{Refused: err.Error(), Stage: "start"}
	}
	for name := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		a.Gates[string(name)] = utilfeature.DefaultFeatureGate.Enabled(name)
	}
	return a
}

// load does the steps of upstream's command that read and validate the configuration.
func load(args []string) (*options.KubeletFlags, *kubeletconfig.KubeletConfiguration, string, error) {
	ctx := context.Background()
	set := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	flags := options.NewKubeletFlags()
	config, err := options.NewKubeletConfiguration()
	if err != nil {
		return nil, nil, "flags", err
	}
	flags.AddFlags(set)
	options.AddKubeletConfigFlags(set, config)
	options.AddGlobalFlags(set)
	set.BoolP("help", "h", false, "")

	if err := set.Parse(args); err != nil {
		return nil, nil, "flags", err
	}
	if len(set.Args()) > 0 {
		return nil, nil, "flags", fmt.Errorf("unknown command %s", set.Args()[0])
	}
	gates := utilfeature.DefaultMutableFeatureGate
	if err := gates.SetFromMap(config.FeatureGates); err != nil {
		return nil, nil, "flags", err
	}
	if err := options.ValidateKubeletFlags(flags); err != nil {
		return nil, nil, "flags", err
	}
	if flags.KubeletConfigFile != "" {
		if config, err = loadConfigFile(ctx, flags.KubeletConfigFile); err != nil {
			return nil, nil, "files", err
		}
	}
	if flags.KubeletDropinConfigDirectory != "" {
		if _, err := mergeKubeletConfigurations(config, flags.KubeletDropinConfigDirectory); err != nil {
			return nil, nil, "files", err
		}
	}
	if flags.KubeletConfigFile != "" || flags.KubeletDropinConfigDirectory != "" {
		if err := kubeletConfigFlagPrecedence(config, args); err != nil {
			return nil, nil, "flags", err
		}
		if err := gates.SetFromMap(config.FeatureGates); err != nil {
			return nil, nil, "files", err
		}
	}
	errs := logsapi.Validate(&config.Logging, utilfeature.DefaultFeatureGate, field.NewPath("logging"))
	if len(errs) > 0 {
		return nil, nil, "validation", errs.ToAggregate()
	}
	// These checks depend on the cgroup version of the node, so they are left out.
	failCgroupV1, singleProcess := config.FailCgroupV1, config.SingleProcessOOMKill
	config.FailCgroupV1, config.SingleProcessOOMKill = false, nil
	err = validation.ValidateKubeletConfiguration(config, utilfeature.DefaultFeatureGate)
	config.FailCgroupV1, config.SingleProcessOOMKill = failCgroupV1, singleProcess
	return flags, config, "validation", err
}

// serving runs upstream's choice of the serving certificate. If upstream makes one, it makes it in certs, but the
// configuration gets the path in the configured directory.
func serving(f *options.KubeletFlags, c *kubeletconfig.KubeletConfiguration, certs string) error {
	elsewhere := *f
	elsewhere.CertDirectory = certs
	_, err := app.InitializeTLS(context.Background(), &elsewhere, c)
	for _, file := range []*string{&c.TLSCertFile, &c.TLSPrivateKeyFile} {
		if filepath.Dir(*file) == filepath.Clean(certs) {
			*file = filepath.Join(f.CertDirectory, filepath.Base(*file))
		}
	}
	return err
}

// start does those checks of upstream after the validation that do not depend on the node.
func start(f *options.KubeletFlags, c *kubeletconfig.KubeletConfiguration) error {
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(c.FeatureGates); err != nil {
		return err
	}
	if f.ExitOnLockContention && f.LockFilePath == "" {
		return errors.New("cannot exit on lock file contention: no lock file specified")
	}
	name, err := nodeutil.GetHostname(f.HostnameOverride)
	if err != nil {
		return err
	}
	var client kubernetes.Interface
	if f.KubeConfig != "" {
		if client, err = kubernetes.NewForConfig(&rest.Config{Host: "http://api"}); err != nil {
			return err
		}
	}
	auth := *c
	auth.Authentication.X509.ClientCAFile = "" // whether the file exists depends on the node
	if _, _, err := app.BuildAuth(types.NodeName(name), client, auth); err != nil {
		return err
	}
	// The configuration that is shown shares these maps, so the changes are visible there.
	if cpus, err := cpuset.Parse(c.ReservedSystemCPUs); err == nil && cpus.Size() > 0 {
		delete(c.KubeReserved, "cpu")
		if c.SystemReserved == nil {
			c.SystemReserved = map[string]string{}
		}
		c.SystemReserved["cpu"] = strconv.Itoa(cpus.Size())
	}
	for _, reserved := range []map[string]string{c.KubeReserved, c.SystemReserved} {
		if _, err := parseResourceList(reserved); err != nil {
			return err
		}
	}
	if _, err := eviction.ParseThresholdConfig(nil, c.EvictionHard, nil, nil, nil); err != nil &&
		!f.ExperimentalNodeAllocatableIgnoreEvictionThreshold {
		return err
	}
	if _, err := cm.ParseQOSReserved(c.QOSReserved); err != nil {
		return err
	}
	if _, _, err := nodeutil.ParseNodeIPArgument(f.NodeIP, f.CloudProvider); err != nil {
		return err
	}
	if f.RootDirectory == "" {
		return errors.New("invalid root directory")
	}
	if c.SyncFrequency.Duration <= 0 {
		return fmt.Errorf("invalid sync frequency %d", c.SyncFrequency.Duration)
	}
	if f.CloudProvider != "" && !cloudprovider.IsExternal(f.CloudProvider) {
		return cloudprovider.ErrorForDisabledProvider(f.CloudProvider)
	}
	var allocatable []string
	if !f.ExperimentalNodeAllocatableIgnoreEvictionThreshold {
		allocatable = c.EnforceNodeAllocatable
	}
	if _, err := eviction.ParseThresholdConfig(
		allocatable,
		c.EvictionHard,
		c.EvictionSoft,
		c.EvictionSoftGracePeriod,
		c.EvictionMinimumReclaim,
	); err != nil {
		return err
	}
	if client != nil {
		switch c.ConfigMapAndSecretChangeDetectionStrategy {
		case kubeletconfig.WatchChangeDetectionStrategy,
			kubeletconfig.TTLCacheChangeDetectionStrategy,
			kubeletconfig.GetChangeDetectionStrategy:
		default:
			return fmt.Errorf(
				"unknown configmap and secret manager mode: %v",
				c.ConfigMapAndSecretChangeDetectionStrategy,
			)
		}
	}
	if _, err := parseMaxSize(c.ContainerLogMaxSize); err != nil {
		return err
	}
	policy := kubecontainer.GCPolicy{
		MinAge:             f.MinimumGCAge.Duration,
		MaxPerPodContainer: int(f.MaxPerPodContainerCount),
		MaxContainers:      int(f.MaxContainerCount),
	}
	if _, err := kubecontainer.NewContainerGC(nil, policy, nil); err != nil {
		return err
	}
	_, err = sysctl.NewAllowlist(c.AllowedUnsafeSysctls)
	return err
}

// configz returns the configuration in the form that upstream shows. It shares its maps with c.
func configz(c *kubeletconfig.KubeletConfiguration) (*kubeletconfigv1beta1.KubeletConfiguration, error) {
	scheme, _, err := kubeletscheme.NewSchemeAndCodecs()
	if err != nil {
		return nil, err
	}
	versioned := &kubeletconfigv1beta1.KubeletConfiguration{}
	if err := scheme.Convert(c, versioned, nil); err != nil {
		return nil, err
	}
	versioned.SetGroupVersionKind(kubeletconfigv1beta1.SchemeGroupVersion.WithKind("KubeletConfiguration"))
	return versioned, nil
}

// native returns the settings that have a flag and no field in the configuration, by the names of the flags.
func native(f *options.KubeletFlags) map[string]any {
	return map[string]any{
		"kubeconfig":                               f.KubeConfig,
		"bootstrap-kubeconfig":                     f.BootstrapKubeconfig,
		"hostname-override":                        f.HostnameOverride,
		"node-ip":                                  f.NodeIP,
		"root-dir":                                 f.RootDirectory,
		"cert-dir":                                 f.CertDirectory,
		"cloud-provider":                           f.CloudProvider,
		"node-labels":                              f.NodeLabels,
		"runtime-cgroups":                          f.RuntimeCgroups,
		"lock-file":                                f.LockFilePath,
		"exit-on-lock-contention":                  f.ExitOnLockContention,
		"minimum-container-ttl-duration":           f.MinimumGCAge.Duration.String(),
		"maximum-dead-containers-per-container":    f.MaxPerPodContainerCount,
		"maximum-dead-containers":                  f.MaxContainerCount,
		"experimental-mounter-path":                f.ExperimentalMounterPath,
		"experimental-allocatable-ignore-eviction": f.ExperimentalNodeAllocatableIgnoreEvictionThreshold,
		"image-credential-provider-config":         f.ImageCredentialProviderConfigPath,
		"image-credential-provider-bin-dir":        f.ImageCredentialProviderBinDir,
		"seccomp-default":                          f.SeccompDefault,
	}
}
