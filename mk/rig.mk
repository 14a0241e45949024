# Real programs around the kubelet, for tests, clusters and the conformance suite.
# They are built or unpacked into a cache outside the checkout (KEELSON_CACHE).

KUBELET ?=
RUNTIME ?= built
FOCUS ?=

.PHONY: deps parts cluster cluster-down conformance clean-rigs
deps: ## install the Debian packages that building and running the parts needs
	@test/parts/deps.sh

parts: deps ## build containerd, runc, CNI plugins, etcd and the control plane, those that are missing
	@go run ./tools/parts runtime cluster

cluster: deps ## leave a one-node cluster running (KUBELET=file|upstream, RUNTIME=built|debian|path)
	@go run ./tools/cluster $(if $(KUBELET),-kubelet '$(KUBELET)') -runtime $(RUNTIME) up

cluster-down: ## remove the cluster
	@go run ./tools/cluster down

conformance: deps ## run upstream's NodeConformance specs (FOCUS=regexp, KUBELET=file|upstream)
	@go run ./tools/conformance $(if $(KUBELET),-kubelet '$(KUBELET)') $(if $(FOCUS),-focus '$(FOCUS)')

clean-rigs: ## remove what killed test runs left: processes, mounts, cgroups, bridges
	@go run ./tools/clean
