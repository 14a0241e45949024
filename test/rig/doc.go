// Package rig starts real programs in a folder of its own and removes all of them again: a container runtime with its
// network, a control plane, and any kubelet binary. Tests use it through Start, commands through Open and Close.
//
//	r := rig.Start(t, rig.Options{Cluster: true, Kubelet: &rig.KubeletConfig{Binary: bin}})
//	r.Cluster.Client          // client-go, as admin
//	r.Runtime.CRI             // the runtime, by hand
//	r.Kubelet.Kill9(); r.Kubelet.Start(ctx)
//
//	r.Kubelet.Restart(ctx); r.Kubelet.Swap(ctx, otherBinary)
//	r.Kubelet.Get(ctx, "/pods")          // the kubelet's server, as admin
//	r.Runtime.Kill9(); r.Runtime.Start(ctx); r.Runtime.Freeze(); r.Runtime.Thaw()
//	r.Cluster.KillAPIServer(); r.Cluster.StartAPIServer(ctx)
//	r.Cluster.UntilPod(ctx, "default", "web", rig.PodReady)
//
// Without Cluster the kubelet runs standalone, on the manifests that a test
// puts into r.Kubelet.Manifests. Options.Runtime chooses between the built
// runtime and Debian's; images.Pause and images.Demo are always imported.
// KubeletConfig.Endpoint points the kubelet at another runtime, a fake one for
// example, with Options.NoRuntime.
//
// A rig claims a number by making its folder, keelson-rig-<N> in the temporary
// folder. All names and addresses that must be distinct are derived from the number:
// the bridge kl<N> with pods in 10.231.0.0/16, the loopback address
// 127.88.<N>.1 of the control plane, the cgroup keelson-rig-<N>, the node name.
// So several rigs can run at once, and no port is chosen by chance.
//
// What a rig makes outside its folder is written in the folder's ledger before
// it is made. Close uses the ledger, and so does Sweep, which removes the
// rigs whose owner has ended: the next test run removes what a killed one left.
// A rig does not touch /etc/cni, /var/lib/containerd, /var/lib/kubelet and the
// system's containerd. Kernel settings that programs of a rig change, such as
// ip_forward, are restored when the last rig is closed.
//
// States of a Rig: open, closed. While it is open, parts may be started: runtime
// and cluster before the kubelet. A Rig belongs to one goroutine; its parts may
// be used from several.
package rig
