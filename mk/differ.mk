# Both agents, ours and upstream's, live the same generated histories.

SEED ?= 1
N    ?= 100
LIFE ?=
KEEP ?=

.PHONY: differ
differ: deps build ## compare generated pods under our agent and upstream's (SEED=n N=pods LIFE=3,17 KEEP=folder REAL=1 on containerd)
	@go run ./test/differ/cmd/differ -kubelet bin/kubelet -seed $(SEED) -n $(N) $(if $(LIFE),-life $(LIFE)) $(if $(KEEP),-keep $(KEEP)) $(if $(filter 1,$(REAL)),-real)
