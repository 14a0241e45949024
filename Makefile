# Keelson: a Kubernetes node agent. `make help` lists what can be made.

VERSION ?= v1.36.3+keelson
GO      ?= go
COMMIT  := $(shell git rev-parse HEAD 2>/dev/null)
DATE    := $(shell TZ=UTC git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ 2>/dev/null)

CONFIG  := keelson/internal/config
LDFLAGS := -s -w -X $(CONFIG).version=$(VERSION) $(if $(COMMIT),-X $(CONFIG).gitCommit=$(COMMIT)) $(if $(DATE),-X $(CONFIG).buildDate=$(DATE))

# Without the traces of gRPC, which nothing reads, and with them without html/template: it calls methods by their
# names, so that the linker could remove none (decision 0122).
TAGS := grpcnotrace

# One version for all developers, so that all see the same findings.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

# Packages whose tests need nothing but Go and, for some, root. The others under
# test/ start real programs: see test/README.md.
UNIT = ./cmd/... ./internal/... ./docs/... ./tools/... $(shell $(GO) list ./test/... | grep -E '/test/(kit|rules|script|config)(/|$$)')
INTEGRATION = $(shell $(GO) list ./test/... | grep -vE '/test/(kit|rules|script|config)(/|$$)')

.DEFAULT_GOAL := build
MAKEFLAGS += --no-print-directory

.PHONY: help build check fmt format vet lint unit test clean FORCE

help: ## list what can be made
	@sed -n 's/^\([a-z][a-z0-9-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | sort | awk -F'\t' '{ printf "  %-16s %s\n", $$1, $$2 }'

build: bin/kubelet ## build bin/kubelet

bin/kubelet: FORCE
	@CGO_ENABLED=0 $(GO) build -trimpath -tags '$(TAGS)' -ldflags '$(LDFLAGS)' -o $@ ./cmd/kubelet

check: format vet lint unit ## what every change must pass: format, vet, lint, unit tests

format:
	@out="$$(gofmt -l cmd internal test tools docs)"; test -z "$$out" || { echo "not formatted (make fmt):"; echo "$$out"; exit 1; }

fmt: ## format the code
	@gofmt -w cmd internal test tools docs

vet:
	@$(GO) vet ./...

lint:
	@$(GO) run $(STATICCHECK) ./...

unit: ## unit tests alone
	@$(GO) test -timeout 30m $(UNIT)

test: check deps ## check, then the tests on a real runtime and a real API server
	@$(GO) test -p 1 -timeout 50m $(INTEGRATION)

clean: ## remove what was built here
	@rm -rf bin

# Pods on this machine, without a control plane, a registry or anything
# installed: containerd and the kubelet in one folder of their own.

# Flags as for bin/kubelet, so that nothing is compiled twice.
RUN_GO = CGO_ENABLED=0 $(GO)
# RUNTIME=any is the one on PATH, else Debian's; built, debian or path choose one.
RUN_RUNTIME = $(if $(filter file undefined,$(origin RUNTIME)),any,$(RUNTIME))

.PHONY: run clean-run
run: ## run the pods of examples/ on a containerd of its own; Ctrl-C removes all of it
	@began=$$(date +%s); echo '   0 s  preparing: the first time this compiles for a minute or two'; \
	$(RUN_GO) run -trimpath ./tools/run/prepare -began $$began -go '$(GO)' -tags '$(TAGS)' -ldflags '$(LDFLAGS)' && \
	exec bin/run -began $$began -runtime $(RUN_RUNTIME) up

clean-run: ## remove what `make run` left after a crash
	@$(RUN_GO) run -trimpath ./tools/run/prepare -go '$(GO)' -tags '$(TAGS)' -ldflags '$(LDFLAGS)' -runtime=false && exec bin/run clean

include $(sort $(wildcard mk/*.mk))
