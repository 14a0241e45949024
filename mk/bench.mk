# Benchmarks: our kubelet, upstream's kubelet, and runtime calls that are made directly.

ONLY ?=
RUNS ?= 20
PODS ?= 110
PROFILE ?=

.PHONY: bench
bench: deps build ## run the benchmarks (RUNS=n ONLY=F1,F2|all PODS=110 PROFILE=folder)
	@go run ./tools/bench -kubelet bin/kubelet -runs $(RUNS) -pods $(PODS) $(if $(ONLY),-only $(ONLY)) $(if $(PROFILE),-profile $(PROFILE))
