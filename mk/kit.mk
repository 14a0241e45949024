# Parity with upstream, row by row (docs/parity), random histories, and the stand-alone fakes.

# Records of the tests that prove rows. They are outside the checkout, because the
# go command does not cache results of tests that write inside it.
PARITY_DIR ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/keelson/parity
export KEELSON_PARITY_DIR = $(PARITY_DIR)

.PHONY: parity parity-run
parity: ## how many rows of docs/parity are proven by tests that ran and passed
	@go run ./tools/parity

parity-run: deps ## the same, after running the tests that prove rows afresh, on real parts too (an hour)
	@go run ./tools/parts runtime cluster peer >/dev/null
	@go build -o bin/guest ./tools/guest
	@go run ./tools/parity -run -guest '$(CURDIR)/bin/guest'

FAKECRI_SOCKET ?= unix:///tmp/fakecri.sock
.PHONY: fakecri
fakecri: ## serve the fake container runtime on FAKECRI_SOCKET
	@go run ./tools/fakecri -listen $(FAKECRI_SOCKET)

N ?= 1000
SEED ?= 1
.PHONY: histories
histories: ## run N random histories of a node, from SEED on
	@GOGC=300 $(GO) test -count 1 -timeout 0 -run 'TestHistories$$' ./test/script -histories $(N) -seed $(SEED)
