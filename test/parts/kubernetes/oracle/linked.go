package main

import (
	"context"
	_ "unsafe" // for go:linkname

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	api "k8s.io/kubernetes/pkg/apis/core"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
)

// Functions that upstream does not export. They can be declared without a body because the package has the file
// linked.s.

//go:linkname tryDecodeSinglePod k8s.io/kubernetes/pkg/kubelet/config.tryDecodeSinglePod
func tryDecodeSinglePod(log klog.Logger, data []byte, defaults func(klog.Logger, *api.Pod) error) (bool, *v1.Pod, error)

//
//go:linkname tryDecodePodList k8s.io/kubernetes/pkg/kubelet/config.tryDecodePodList
func tryDecodePodList(
	log klog.Logger,
	data []byte,
	defaults func(klog.Logger, *api.Pod) error,
) (bool, v1.PodList, error)

//go:linkname applyDefaults k8s.io/kubernetes/pkg/kubelet/config.applyDefaults
func applyDefaults(log klog.Logger, pod *api.Pod, source string, isFile bool, node string) error

//go:linkname loadConfigFile k8s.io/kubernetes/cmd/kubelet/app.loadConfigFile
func loadConfigFile(ctx context.Context, name string) (*kubeletconfig.KubeletConfiguration, error)

//go:linkname mergeKubeletConfigurations k8s.io/kubernetes/cmd/kubelet/app.mergeKubeletConfigurations
func mergeKubeletConfigurations(c *kubeletconfig.KubeletConfiguration, dir string) ([]string, error)

//go:linkname kubeletConfigFlagPrecedence k8s.io/kubernetes/cmd/kubelet/app.kubeletConfigFlagPrecedence
func kubeletConfigFlagPrecedence(c *kubeletconfig.KubeletConfiguration, args []string) error

//go:linkname parseResourceList k8s.io/kubernetes/cmd/kubelet/app.parseResourceList
func parseResourceList(m map[string]string) (v1.ResourceList, error)

//go:linkname parseMaxSize k8s.io/kubernetes/pkg/kubelet/logs.parseMaxSize
func parseMaxSize(size string) (int64, error)
