# Tests of the whole agent on real programs: test/e2e.

RUN ?=

# Part of `make test`, which installs what building the parts needs.
test: e2e

.PHONY: e2e
e2e: deps ## test the whole agent on a real runtime and a real API server (RUN=regexp)
	@go run ./test/rig/cmd/parts runtime cluster peer >/dev/null
	@go vet -tags e2e ./test/e2e
	@go test -tags e2e -count 1 -timeout 25m $(if $(RUN),-run '$(RUN)') ./test/e2e
