# Poise: `make help` lists the targets.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

GO       ?= go
FUZZTIME ?= 3m
SOAK     ?= 10m
# A package that takes longer than this hangs.
TIMEOUT  ?= 15m
# Given to the tests as they are, for example TESTFLAGS='-count=1 -v'.
TESTFLAGS ?=
# Parts of the end-to-end tests, folders of internal/e2e: make e2e PART=udp, PART='tcp tls'.
PART     ?= tcp tls udp health reload lab soak
# The binary that the end-to-end tests run, built once for all parts.
TESTED   := $(CURDIR)/bin/poise-tested

# Pinned, and run without entering go.mod: what the linters need is not what Poise needs.
GOFUMPT     := $(GO) run mvdan.cc/gofumpt@v0.9.2
STATICCHECK := $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.7.0

# A checkout without tags, without commits or owned by somebody else still builds.
VERSION := $(or $(shell git describe --tags --always --dirty 2>/dev/null),dev)
LDFLAGS := -X main.version=$(VERSION)
# The version is stamped above; the toolchain's own stamping fails where git does.
export GOFLAGS := $(strip $(GOFLAGS) -buildvcs=false)

.PHONY: help run test e2e check build bench gobench fuzz lab soak clean \
	deps tested log fmt format vet staticcheck tidy configs

help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: build ## build, then show a whole system at work on loopback (Ctrl-C ends it)
	@bin/poise demo

test: deps tested ## all tests, with the race detector, in random order
	POISE_TEST_BINARY=$(TESTED) scripts/progress.sh $(GO) test -race -shuffle=on -timeout $(TIMEOUT) $(TESTFLAGS) ./...

e2e: deps tested ## end-to-end tests of the real binary, or parts of them (PART=udp)
	POISE_TEST_BINARY=$(TESTED) scripts/progress.sh $(GO) test -race -shuffle=on -timeout $(TIMEOUT) $(TESTFLAGS) $(addprefix ./internal/e2e/,$(PART))

# `make check test` is one run: make builds the target test once.
check: log fmt vet staticcheck tidy configs test ## everything CI checks: the log, format, vet, staticcheck, go.mod, samples, tests

build: ## build bin/poise, version stamped
	@[[ -e bin/poise ]] || echo 'building: the first time takes about a minute'
	@mkdir -p bin
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/poise ./cmd/poise

bench: build ## compare with HAProxy and nginx (BENCHFLAGS=--quick; see docs/bench.md)
	POISE=bin/poise OUT=$(or $(OUT),bench.json) scripts/bench.sh $(BENCHFLAGS)

gobench: ## Go benchmarks of the packages
	$(GO) test -run '^$$' -bench . -benchmem ./...

fuzz: ## run every fuzz target (FUZZTIME=3m for all of them together)
	GO='$(GO)' scripts/fuzz.sh $(FUZZTIME)

lab: deps tested ## only the tests that need network namespaces; needs root
	@[[ $$(id -u) -eq 0 ]] || { echo 'make lab: network namespaces need root' >&2; exit 1; }
	POISE_TEST_ALL=1 POISE_TEST_BINARY=$(TESTED) $(GO) test -race -count=1 -timeout $(TIMEOUT) -run '^TestLab' $(TESTFLAGS) ./...

soak: ## hours of abuse in minutes: churn, faults and a reload every second (SOAK=10m)
	POISE_SOAK=$(SOAK) $(GO) test -count=1 -timeout 0 -v -run '^TestSoak$$' $(TESTFLAGS) ./internal/e2e/soak

clean: ## remove what was built
	rm -rf bin bench.json

deps:
	@scripts/deps.sh

tested:
	@mkdir -p $(dir $(TESTED))
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-X main.version=v0.0.0-test' -o $(TESTED) ./cmd/poise

log:
	@scripts/check-log.sh --self
	@scripts/check-log.sh

format: ## rewrite the sources with gofumpt
	$(GOFUMPT) -w .

fmt:
	@unformatted=$$($(GOFUMPT) -l .) || exit; \
	[[ -z $$unformatted ]] || { echo "not formatted (make format):" >&2; echo "$$unformatted" >&2; exit 1; }

vet:
	$(GO) vet ./...

staticcheck:
	$(STATICCHECK) ./...

tidy:
	$(GO) mod tidy -diff

configs: build
	scripts/check-configs.sh bin/poise
