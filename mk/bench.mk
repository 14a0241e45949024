# Figures: our kubelet beside upstream's and beside runtime calls by hand.

ONLY ?=
RUNS ?= 20
PODS ?= 110
PROFILE ?=

.PHONY: bench
bench: deps build ## measure against the figures (RUNS=n ONLY=F1,F2|all PODS=110 PROFILE=folder)
	@go run ./tools/bench -kubelet bin/kubelet -runs $(RUNS) -pods $(PODS) $(if $(ONLY),-only $(ONLY)) $(if $(PROFILE),-profile $(PROFILE))
