# Tests of `make run`: part of `make test`.

test: test-run

.PHONY: test-run
test-run: deps ## test `make run`: what it shows, what it leaves, what is left after a crash
	@$(GO) run ./tools/parts runtime >/dev/null
	@$(GO) vet -tags e2e ./tools/run
	@$(GO) test -tags e2e -count 1 -timeout 30m -run 'TestRun|TestCleanAfterCrash' ./tools/run
