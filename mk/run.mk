# Pods on this machine, without a control plane, a registry or anything
# installed: containerd and the kubelet in one folder of their own.

# Flags as for bin/kubelet, so that nothing is compiled twice.
RUN_GO = CGO_ENABLED=0 $(GO)
# RUNTIME=any is the one on PATH, else Debian's; built, debian or path choose one.
RUN_RUNTIME = $(if $(filter file undefined,$(origin RUNTIME)),any,$(RUNTIME))

.PHONY: run clean-run
run: ## run the pods of examples/ on a containerd of its own; Ctrl-C removes all of it
	@began=$$(date +%s); echo '   0 s  preparing: the first time this compiles for a minute or two'; \
	$(RUN_GO) run -trimpath ./test/run/prepare -began $$began -go '$(GO)' -ldflags '$(LDFLAGS)' && \
	exec bin/run -began $$began -runtime $(RUN_RUNTIME) up

clean-run: ## remove what `make run` left after a crash
	@$(RUN_GO) run -trimpath ./test/run/prepare -go '$(GO)' -ldflags '$(LDFLAGS)' -runtime=false && exec bin/run clean

# Part of `make test`.
test: test-run

.PHONY: test-run
test-run: deps ## test `make run`: what it shows, what it leaves, what is left after a crash
	@$(GO) run ./test/rig/cmd/parts runtime >/dev/null
	@$(GO) vet -tags e2e ./test/run
	@$(GO) test -tags e2e -count 1 -timeout 10m -run 'TestRun|TestCleanAfterCrash' ./test/run
