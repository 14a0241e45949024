# How our kubelet and upstream's read manifests, configuration files and flags:
# test/differ/inputs. `make test` runs a smaller number of them.

MANIFESTS ?= 5000
CONFIGS ?= 2000
REAL ?= 40

.PHONY: differ-inputs
differ-inputs: ## compare how both kubelets read generated manifests and configurations (SEED=n MANIFESTS=n CONFIGS=n REAL=n)
	@$(GO) run ./tools/parts inputs peer >/dev/null
	@$(GO) test -count 1 -v -timeout 30m ./test/differ/inputs -all -seed $(SEED) -manifests $(MANIFESTS) -configs $(CONFIGS) -real $(REAL)
