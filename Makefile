# `make` lists the targets. CI runs the same ones.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

export CGO_ENABLED ?= 0
TOOL := go tool -modfile=tools/lint.mod
FUZZTIME ?= 10s
SEEDED := $(addprefix ./,$(wildcard auth gate access redact))
PRUNEBENCH ?= ../shared/prunebench

.PHONY: chart foreign-ids help check test test-ci race nightly first-run seeded-faults fuzz fuzz-ci fuzz-long limits-long e2e peers agents agents-ci agents-record agents-install agents-install-ci conformance chaos chaos-short failovers bench bench-model bench-growing scalesim engine-costs engine-costs-short cachecost cachecost-short prunebench syntaxcheck docs build cross snapshot snapshot-all reproducible goreleaser lint style vuln drift cover replicas

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-15s %s\n", $$1, $$2}'

check: lint style drift cross vuln ## lint, shared names, generated documents up to date, other platforms, known vulnerabilities

test: ## all unit tests, with the race detector and in random order
	CGO_ENABLED=1 go test -race -shuffle=on -timeout 15m $$(go list ./... | grep -v /e2e)

test-ci: ## the unit tests as CI runs them: with the race detector where there are goroutines, long tests without it
	bash .ci/test

race: ## all unit tests five times, with the race detector and in random order (half an hour)
	CGO_ENABLED=1 go test -race -count=5 -shuffle=on -timeout 60m $$(go list ./... | grep -v /e2e)

nightly: race limits-long e2e s3 replicas first-run conformance chaos failovers bench-model cachecost prunebench goreleaser reproducible seeded-faults foreign-ids fuzz-long scalesim engine-costs ## everything in its long form (hours; after make peers)

.PHONY: s3
s3: ## originals in a bucket, in the long form: gateways and servers killed, slow and refusing servers (ten minutes, and ten to compile MinIO)
	CTXGATE_S3_LONG=1 CTXGATE_S3_SERVER=minio go test -count=1 -timeout 60m -v ./state/s3 | grep -vE '^(=== |    --- PASS|        --- PASS)'
	CTXGATE_S3_LONG=1 CTXGATE_S3_SERVER=versitygw go test -count=1 -timeout 60m -v ./state/s3 | grep -vE '^(=== |    --- PASS|        --- PASS)'

fuzz: ## every fuzz target, ten seconds each (FUZZTIME=…)
	bash .ci/fuzz $(FUZZTIME)

fuzz-ci: ## every fuzz target, two seconds each
	bash .ci/fuzz 2s

seeded-faults: ## every if condition of the packages that decide who may pass inverted, one at a time: their tests must notice
	go run ./tools/seededfaults -skip 'CostOf100Rules|Flood' $(SEEDED)

foreign-ids: ## a million ids that a tenant must not read anything with, and the CPU time of their answers (five minutes)
	CTXGATE_FOREIGN_IDS=1 go test -count=1 -timeout 30m -run TestUnreadableIDs -v ./recall | grep -vE '^=== '

limits-long: ## a million random traces of rates against their models, and a minute of four replicas at each kind of store (half an hour)
	CTXGATE_LONG=1 go test -count=1 -timeout 120m -run R13 -v ./limit ./state/redis | grep -vE '^=== '

fuzz-long: ## every fuzz target, eight minutes each, dependencies and the standard library instrumented too
	bash .ci/fuzz 8m all

snapshot: ## the files of a release for this platform in dist, installed and run
	go run ./tools/release -platforms host
	go test -count=1 ./e2e/release -dist ../../dist

snapshot-all: ## the same for all platforms (ten minutes on an empty cache)
	go run ./tools/release
	go test -count=1 ./e2e/release -dist ../../dist

reproducible: ## two builds of this commit, the second in another directory with an empty cache, have the same bytes
	bash .ci/reproducible

goreleaser: snapshot-all ## the same files by GoReleaser, compared (a quarter of an hour to compile it)
	bash .ci/goreleaser

e2e: ## end-to-end tests with the real binary and real sockets
	go test -shuffle=on -timeout 10m -v ./e2e/ | grep -vE '^(=== |    --- PASS|        --- PASS)'

peers: ## install the MCP servers and SDKs from npm that ctxgate is tested with
	bash .ci/npm-install e2e/peers/npm

conformance: ## the MCP conformance suite and third-party SDKs through the gateway (after make peers)
	go test -shuffle=on -timeout 20m -v ./e2e/peers/ | grep -vE '^(=== |    --- PASS|        --- PASS|            --- PASS)'

# Each agent has a folder with its own lock; their install scripts do not run.
CI_AGENTS := claude-code codex continue inspector
ALL_AGENTS := $(notdir $(patsubst %/package.json,%,$(wildcard e2e/agents/npm/*/package.json)))
AGENT_INSTALL = @bash .ci/npm-install $(addprefix e2e/agents/npm/,$(1))

agents-install: ## install the agents that ctxgate is tested with, from npm (2 GB)
	$(call AGENT_INSTALL,$(ALL_AGENTS))

agents-install-ci: ## install the agents that CI runs
	$(call AGENT_INSTALL,node $(CI_AGENTS))

agents: ## all real agents as MCP clients and model clients of ctxgate; writes docs/agents.md (after make agents-install)
	CTXGATE_AGENTS=all CTXGATE_AGENTS_REPORT=$(CURDIR)/docs/agents.md go test -count=1 -parallel 2 -timeout 30m -v ./e2e/agents/ | grep -vE '^(=== |    --- PASS|        --- PASS)'

agents-record: ## record what every agent sends, for the tests of other packages
	CTXGATE_AGENTS=all CTXGATE_AGENTS_RECORD=$(CURDIR)/internal/testkit/recordings/testdata go test -count=1 -timeout 30m -run TestRecord -v ./e2e/agents/ | grep -vE '^=== '

first-run: ## the first run with an empty npm cache and four servers from the npm registry
	CTXGATE_FIRST_RUN=1 go test -count=1 -timeout 15m -run TestFirstRun -v ./e2e/agents/ | grep -vE '^=== '

agents-ci: ## the agents that CI runs
	CTXGATE_AGENTS="$(CI_AGENTS)" go test -shuffle=on -parallel 2 -timeout 10m -v ./e2e/agents/ | grep -vE '^(=== |    --- PASS|        --- PASS)'

chaos: ## chaos tests: crashes, floods, slow and broken peers (ten minutes)
	CTXGATE_CHAOS=full go test -timeout 150m -v ./e2e/chaos/ | grep -vE '^(=== |    --- PASS|        --- PASS)'

chaos-short: ## the chaos tests, short form
	go test -timeout 15m -v ./e2e/chaos/ | grep -vE '^(=== |    --- PASS|        --- PASS)'

replicas: ## HAProxy, three replicas and a Redis Cluster: rolling restart and upgrade under load; the files in deploy; docs/replicas.md
	go test -timeout 10m -v ./e2e/replicas/ | grep -vE '^(=== |    --- PASS|        --- PASS)'

chart: ## lint and render the Helm chart, and decode the result into Kubernetes' types
	bash .ci/chart

failovers: ## failovers of Redis under load, and power cuts: no text whose id was shown is lost (half an hour)
	CTXGATE_FAILOVERS=full go test -count=1 -timeout 120m -run TestR12 -v ./e2e/chaos/ | grep -vE '^(=== |    --- PASS|        --- PASS)'

bench: ## masking compared with copy, encoding/json and jsontext, pruning with grep, the LLM endpoint with a bare proxy and nginx, as ratios
	go run ./tools/bench

bench-growing: ## processor time of a model request in conversations that grow turn by turn
	go run ./tools/bench growing

bench-model: ## the LLM endpoint compared with a bare proxy and nginx, in full (eight minutes)
	go run ./tools/bench model

engine-costs: ## processor time per call with each store, of the gateway and of the store, beside the store bare
	go run ./tools/bench engines

engine-costs-short: ## the same with few calls: does it run?
	go run ./tools/bench engines brief

scalesim: ## 100 and 1,000 replicas, simulated: latency, limits, segments, caches, a region's loss; what numbers of agents need and cost
	go run ./tools/scalesim

cachecost: ## what masking old tool results costs or saves with a provider that caches prompts (one minute)
	go run ./tools/cachecost

cachecost-short: ## cachecost for fewer conversations
	go run ./tools/cachecost -short

# The benchmark's scorer rates the ranking of lines, by lines, by characters and by kind of goal; then the
# real server shows what a call of prune_text returns.
SCORE = python3 $(PRUNEBENCH)/score.py --data $(PRUNEBENCH)/dev.jsonl.gz --cmd "bin/ctxgate prune --bench" --name ctxgate
prunebench: build ## how well pruning keeps the needed lines, on the samples in PRUNEBENCH, if they exist
	@if [ ! -e $(PRUNEBENCH)/score.py ]; then echo "there is no pruning benchmark at $(PRUNEBENCH)"; exit 0; fi; \
	echo "# a budget of lines"; $(SCORE) --methods grep,bm25,ref --vs ref; \
	echo; echo "# a budget of characters"; $(SCORE) --methods grep,bm25,ref --vs ref --unit chars; \
	echo; echo "# by the kind of goal"; $(SCORE) --methods bm25 --by goal_kind; \
	PRUNEBENCH=$(PRUNEBENCH) go run ./tools/bench served bin/ctxgate; \
	echo; echo "# within max_chars characters"; PRUNEBENCH=$(PRUNEBENCH) go run ./tools/bench limits

syntaxcheck: ## whether pruned code still tokenizes in its language, on the same samples
	@if [ ! -e $(PRUNEBENCH)/dev.jsonl.gz ]; then echo "there is no pruning benchmark at $(PRUNEBENCH)"; exit 0; fi; \
	go run ./tools/syntaxcheck -data $(PRUNEBENCH)/dev.jsonl.gz

docs: ## write the generated documents
	go run ./tools/docgen

stylefigures: ## print lines, function lengths, very small and large files, and shared names
	go run ./tools/stylefigures

build: ## bin/ctxgate
	go build -trimpath -o bin/ctxgate ./cmd/ctxgate

cross: ## type-check for the other platforms
	go run ./tools/crosscheck linux/arm64 darwin/arm64 windows/amd64

lint: ## formatting, vet and the linters of .golangci.yml
	$(TOOL) golangci-lint run ./...

style: ## figures about the code; fails when more than four functions share an unexported name
	@out=$$(go run ./tools/stylefigures -check) && sed -n 1,4p <<< "$$out" || { echo "$$out"; exit 1; }

drift: ## fail if the generated documents are out of date
	@dir=$$(mktemp -d); trap 'rm -rf '$$dir EXIT; cp docs/config.md docs/config.schema.json docs/cli.md docs/prices.md $$dir; \
	go run ./tools/docgen; \
	for f in config.md config.schema.json cli.md prices.md; do \
		cmp -s docs/$$f $$dir/$$f || { echo "docs/$$f was out of date; commit what 'make docs' writes"; exit 1; }; done

vuln: ## known vulnerabilities; reports SKIPPED if the database cannot be reached (.ci/vulndb writes one from a clone)
	@bash .ci/vuln $(TOOL) govulncheck

cover: ## line coverage of the fuzzed packages
	go test -cover ./jsonscan ./rpc ./reduce ./recall ./config
