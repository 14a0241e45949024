# Tests of the whole agent on real programs: test/e2e.

RUN ?=

# Part of `make test`. `make check` vets and lints these tests like all others.
test: e2e
vet: vet-e2e
lint: lint-e2e

.PHONY: e2e vet-e2e lint-e2e
e2e: deps ## test the whole agent on a real runtime and a real API server (RUN=regexp)
	@go run ./tools/parts runtime cluster peer >/dev/null
	@go test -tags e2e -count 1 -timeout 45m $(if $(RUN),-run '$(RUN)') ./test/e2e

.PHONY: differ-values
differ-values: deps ## compare every metric's labels and value with upstream's agent on one node
	@go run ./tools/parts runtime cluster peer >/dev/null
	@DIFFER=values go test -tags e2e -count 1 -timeout 20m -v -run '^TestMetricValuesAreUpstreams$$' ./test/e2e

vet-e2e:
	@$(GO) vet -tags e2e ./test/e2e

lint-e2e:
	@$(GO) run $(STATICCHECK) -tags e2e ./test/e2e
