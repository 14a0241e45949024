// Package inputs compares how this kubelet and upstream's read the same input:
// manifests of static pods, configuration files and command lines.
//
// Inputs are mutations of valid ones, generated from a seed. Upstream's answer comes
// from the part "oracle" (test/parts/kubernetes/oracle), a program that calls
// upstream's own functions; ours from packages desired and config. Both must
// accept or refuse, and what they accept must come out the same.
//
// A difference is reported with its seed and number, which replay it, and with
// the smallest list of mutations that still shows it. A difference on purpose is
// in rules.go, with the decision behind it.
//
// The oracle is checked against upstream's own binary: some of the inputs are
// given to real kubelets, upstream's and ours, each in namespaces of its own on
// a fake runtime (Node).
//
//	make differ-inputs SEED=7 MANIFESTS=5000 CONFIGS=2000 REAL=40
package inputs
