# Tests of the whole agent on cgroup v2, in a User-Mode Linux guest: test/guest.
# Not part of `make test`, because they take several minutes.

# `make check` vets and lints these tests like all others.
vet: vet-guest
lint: lint-guest

.PHONY: guest vet-guest lint-guest
guest: deps ## test the agent on cgroup v2, in a guest machine of its own (RUN=regexp)
	@go run ./tools/parts runtime peer >/dev/null
	@go build -o bin/guest ./tools/guest
	@go test -tags guest -count 1 -timeout 25m -exec '$(CURDIR)/bin/guest' $(if $(RUN),-run '$(RUN)') ./test/guest

vet-guest:
	@$(GO) vet -tags guest ./test/guest

lint-guest:
	@$(GO) run $(STATICCHECK) -tags guest ./test/guest
