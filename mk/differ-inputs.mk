# Manifests, configuration files and flags, as upstream reads them: test/differ/inputs.
# A smaller share of it is part of `make test`.

MANIFESTS ?= 5000
CONFIGS ?= 2000
REAL ?= 40

.PHONY: differ-inputs
differ-inputs: ## compare what both kubelets make of generated manifests and configurations (SEED=n MANIFESTS=n CONFIGS=n REAL=n)
	@$(GO) run ./tools/parts inputs peer >/dev/null
	@$(GO) test -count 1 -v -timeout 30m ./test/differ/inputs -all -seed $(SEED) -manifests $(MANIFESTS) -configs $(CONFIGS) -real $(REAL)
