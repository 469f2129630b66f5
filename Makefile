# `make` lists the targets. CI runs the same ones.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

export CGO_ENABLED ?= 0
TOOL := go tool -modfile=tools/go.mod
FUZZTIME ?= 10s
PRUNEBENCH ?= ../shared/prunebench

.PHONY: help check test race nightly fuzz fuzz-long e2e peers conformance chaos chaos-short bench bench-model cachecost cachecost-short prunebench kindness docs build cross lint vuln drift cover

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-11s %s\n", $$1, $$2}'

check: lint drift vuln ## everything that can be said without running the product: lint, docs drift, known vulnerabilities

test: ## all unit tests, with the race detector and in random order
	CGO_ENABLED=1 go test -race -shuffle=on -timeout 15m $$(go list ./... | grep -v /e2e)

race: ## all unit tests five times, with the race detector and in random order (half an hour)
	CGO_ENABLED=1 go test -race -count=5 -shuffle=on -timeout 60m $$(go list ./... | grep -v /e2e)

nightly: race e2e conformance chaos bench-model cachecost prunebench fuzz-long ## the long forms of everything (hours; after make peers)

# A fuzzer whose time ends inside a worker's call says "context deadline exceeded"; that is its clock,
# not a finding: a finding is written down as a failing input.
fuzz: ## every fuzz target, ten seconds each (FUZZTIME=…)
	@log=$$(mktemp); trap 'rm -f '$$log EXIT; for pkg in $$(grep -rlE '^func Fuzz' --include='*_test.go' . | xargs -n1 dirname | sort -u); do \
		for target in $$(grep -hoE '^func Fuzz[A-Za-z]+' $$pkg/*_test.go | sed 's/func //' | sort -u); do \
			echo "fuzz $$pkg $$target $(FUZZTIME)"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1x $$pkg > $$log 2>&1 \
				|| { grep -q 'context deadline exceeded' $$log && ! grep -q 'Failing input' $$log; } \
				|| { cat $$log; exit 1; }; \
			grep -E '^fuzz: elapsed' $$log | tail -1; \
		done; \
	done

fuzz-long: ## every fuzz target, eight minutes each
	$(MAKE) fuzz FUZZTIME=8m

e2e: ## the real binary, real sockets
	go test -shuffle=on -timeout 10m -v ./e2e/ | grep -vE '^(=== |    --- PASS|        --- PASS)'

peers: ## install the programs and SDKs of npm that ctxgate is tested with
	npm ci --prefix e2e/peers/npm --ignore-scripts --no-audit --no-fund --loglevel=error

conformance: ## the conformance suite and the SDKs of others, with the gateway between them (after make peers)
	go test -shuffle=on -timeout 20m -v ./e2e/peers/ | grep -vE '^(=== |    --- PASS|        --- PASS|            --- PASS)'

chaos: ## everything that can go wrong, in full (ten minutes)
	CTXGATE_CHAOS=full go test -timeout 150m -v ./e2e/chaos/ | grep -vE '^(=== |    --- PASS|        --- PASS)'

chaos-short: ## the same, in short
	go test -timeout 15m -v ./e2e/chaos/ | grep -vE '^(=== |    --- PASS|        --- PASS)'

bench: ## masking beside copy, encoding/json and jsontext, pruning beside grep, the model's door beside a bare proxy and nginx, as ratios
	go run ./internal/bench

bench-model: ## the model's door beside a bare proxy and nginx, in full (eight minutes)
	go run ./internal/bench model

cachecost: ## what masking old tool results does to the bill, by the bill of a provider that caches (one minute)
	go run ./internal/cachecost

cachecost-short: ## the same for fewer conversations
	go run ./internal/cachecost -short

# The benchmark's own scorer says what the ranking of lines is worth, in lines, in characters and by
# the kind of goal; then the real server says what a call of prune_text really gives.
SCORE = python3 $(PRUNEBENCH)/score.py --data $(PRUNEBENCH)/dev.jsonl.gz --cmd "bin/ctxgate prune --bench" --name ctxgate
prunebench: build ## how well pruning keeps what was needed, on the samples beside the repository, if they are there
	@if [ ! -e $(PRUNEBENCH)/score.py ]; then echo "the pruning benchmark is not here ($(PRUNEBENCH))"; exit 0; fi; \
	echo "# a budget of lines"; $(SCORE) --methods grep,bm25,ref --vs ref; \
	echo; echo "# a budget of characters"; $(SCORE) --methods grep,bm25,ref --vs ref --unit chars; \
	echo; echo "# by the kind of goal"; $(SCORE) --methods bm25 --by goal_kind; \
	PRUNEBENCH=$(PRUNEBENCH) go run ./internal/bench served bin/ctxgate

kindness: ## whether pruned code still reads, by tokenizers of its languages, on the same samples
	@if [ ! -e $(PRUNEBENCH)/dev.jsonl.gz ]; then echo "the pruning benchmark is not here ($(PRUNEBENCH))"; exit 0; fi; \
	go run ./internal/kindness -data $(PRUNEBENCH)/dev.jsonl.gz

docs: ## write the generated documents
	go run ./internal/gendocs

build: ## bin/ctxgate
	go build -trimpath -o bin/ctxgate ./cmd/ctxgate

cross: ## it builds for the other platforms, one of each kind
	@for p in darwin/arm64 windows/amd64; do \
		echo "build $$p"; GOOS=$${p%/*} GOARCH=$${p#*/} go build -o /dev/null ./cmd/ctxgate; done

lint: ## formatting, vet and the linters of .golangci.yml
	$(TOOL) golangci-lint run ./...

drift: ## fail when the generated documents are not what the code says
	@dir=$$(mktemp -d); trap 'rm -rf '$$dir EXIT; cp docs/config.md docs/config.schema.json docs/cli.md $$dir; \
	go run ./internal/gendocs; \
	for f in config.md config.schema.json cli.md; do \
		cmp -s docs/$$f $$dir/$$f || { echo "docs/$$f was out of date; commit what 'make docs' writes"; exit 1; }; done

vuln: ## known vulnerabilities; says so when the database cannot be reached
	@bash .ci/vuln $(TOOL) govulncheck

cover: ## line coverage of the fuzzed packages
	go test -cover ./jsonscan ./rpc ./reduce ./recall ./config
