# Generated histories of pods, run on our agent and on upstream's.

SEED ?= 1
N    ?= 100
LIFE ?=
KEEP ?=

DIFFER = go run ./tools/differ -kubelet bin/kubelet -seed $(SEED) -n $(N) $(if $(LIFE),-life $(LIFE)) $(if $(KEEP),-keep $(KEEP))

.PHONY: differ differ-real
differ: deps build ## compare generated pods under our agent and upstream's (SEED=n N=pods LIFE=3,17 KEEP=folder)
	@$(DIFFER)

differ-real: deps build ## the same as differ, on containerd and 20 pods at a time (SEED=n N=pods LIFE=3,17 KEEP=folder)
	@$(DIFFER) -real
