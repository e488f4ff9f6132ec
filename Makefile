# Millrace. `make` lists the targets.

GO          ?= go
BIN         := bin
GOLANGCI    := v2.15.0
BUF_VERSION := 1.75.0
# Tools live outside of the checkout, beside the Go build cache.
TOOLS       := $(shell $(GO) env GOPATH)/bin
BUF         := $(TOOLS)/buf-$(BUF_VERSION)/node_modules/.bin/buf
# The other modules: what users import without the rest (sdk/go), and what uses it from
# outside as they do. `./...` stops at their go.mod.
MODULES     := sdk/go e2e/workflows examples/loan bench/workflows-worker
# The SDK's own Go of engine.proto: its package comment says why.
SDK_PB      := sdk/go/internal/enginepb
VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS     := -X github.com/millrace/millrace/internal/build.version=$(VERSION)
TEST_FLAGS  ?= -timeout 10m
TEST_KAFKA_FLAGS ?=

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-zA-Z0-9_-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/millrace
	@mkdir -p $(BIN)
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/millrace ./cmd/millrace

.PHONY: run
run: build ## Build, start everything embedded, run the demonstration, stay up
	$(BIN)/millrace up --demo

.PHONY: stop
stop: ## Stop the instance that `make run` started
	$(BIN)/millrace stop

.PHONY: clean
clean: ## Delete the data of `make run` (asks first) and bin/
	@if [ -x $(BIN)/millrace ]; then $(BIN)/millrace clean; fi
	rm -rf $(BIN)

.PHONY: test
test: ## Run all tests on the embedded broker and a PostgreSQL of their own
	$(GO) test $(TEST_FLAGS) ./...
	@for m in $(MODULES); do $(GO) test -C $$m $(TEST_FLAGS) ./... || exit 1; done

.PHONY: test-race
test-race: ## Run all tests with the race detector
	$(GO) test -race $(TEST_FLAGS) ./...
	@for m in $(MODULES); do $(GO) test -C $$m -race $(TEST_FLAGS) ./... || exit 1; done

.PHONY: test-kafka
test-kafka: ## Run the suites on real Apache Kafka (JDK 17 and Maven) and PostgreSQL
	MILLRACE_TEST_REAL=only $(GO) test -count=1 -timeout 30m $(TEST_KAFKA_FLAGS) ./internal/kafka/... ./internal/testenv/... ./e2e/...
	MILLRACE_TEST_REAL=only $(GO) test -count=1 -timeout 30m $(TEST_KAFKA_FLAGS) -run 'Kafka|Replay' ./app ./examples/triggers ./handlers/trigger/kafkasource ./internal/server/sse

.PHONY: kube
kube: ## Build the API server of Kubernetes and etcd for test-k8s, once per user (some 5 minutes of CPU)
	$(GO) run ./internal/testenv/realkube/cmd/kube

.PHONY: test-k8s
test-k8s: kube ## Run the suites of pods on a real API server and etcd
	MILLRACE_TEST_K8S=1 $(GO) test -count=1 $(MILLRACE_TEST_VERBOSE) -timeout 30m ./internal/testenv/realkube/... ./internal/executor/kubernetes/...
	MILLRACE_TEST_K8S=1 $(GO) test -count=1 $(MILLRACE_TEST_VERBOSE) -timeout 30m -run '^TestPod' ./e2e

.PHONY: cluster
cluster: kube ## Start a Kubernetes cluster for development, in the foreground; its containers are processes of this machine
	$(GO) run ./internal/executor/kubernetes/kubetest/cmd/cluster

.PHONY: kafka
kafka: ## Start a real Apache Kafka on a free port, in the foreground
	$(GO) run ./internal/testenv/cmd/kafka -- run

.PHONY: postgres
postgres: ## Start a real PostgreSQL of its own, in the foreground
	$(GO) run ./internal/testenv/cmd/postgres -- run

.PHONY: bench
bench: ## Measure on real Kafka and PostgreSQL; prints figures and how they were taken
	$(GO) run ./bench/pipeline
	$(GO) run ./bench/transport
	$(GO) run ./bench/relay
	$(GO) run ./bench/consumers
	$(GO) run ./bench/admission
	$(GO) run ./bench/dataindex
	$(GO) run ./bench/rebuild

.PHONY: bench-k8s
bench-k8s: kube ## Measure pods on a real API server; some 10 minutes
	$(GO) run ./bench/kubernetes

CHAOS_TIME    ?= 120s
CHAOS_SEED    ?= 0
CHAOS_BROKERS ?= 1
CHAOS_CASES   ?= mix
CHAOS_FLAGS   ?=

.PHONY: chaos
chaos: build ## Kill and break everything for CHAOS_TIME, then prove that nothing was lost
	$(GO) build -o $(BIN)/chaos ./e2e/chaos
	$(BIN)/chaos -time $(CHAOS_TIME) -seed $(CHAOS_SEED) -brokers $(CHAOS_BROKERS) -cases $(CHAOS_CASES) $(CHAOS_FLAGS)

CROWD_EXECUTIONS ?= 10000
CROWD_USERS      ?= 50
CROWD_SEED       ?= 0
CROWD_FLAGS      ?= -real

.PHONY: crowd
crowd: build ## A crowd asks for CROWD_EXECUTIONS under limits while coordinators die: nothing may break
	$(GO) build -o $(BIN)/crowd ./e2e/crowd
	$(BIN)/crowd -executions $(CROWD_EXECUTIONS) -users $(CROWD_USERS) -seed $(CROWD_SEED) $(CROWD_FLAGS)

# The version before: what an installation is upgraded from. Change it with each release.
MIXED_REF   ?= 7b7db6e
MIXED_TIME  ?= 60s
MIXED_FLAGS ?=
MIXED_OLDER := $(BIN)/older/$(MIXED_REF)

.PHONY: mixed
mixed: build ## Upgrade from MIXED_REF under load, run both versions beside each other, go back and forth
	@if git cat-file -e '$(MIXED_REF)^{commit}' 2>/dev/null; then \
		set -e; \
		if [ ! -x $(MIXED_OLDER)/millrace ]; then \
			mkdir -p $(MIXED_OLDER)/src; git archive '$(MIXED_REF)' | tar -x -C $(MIXED_OLDER)/src; \
			$(GO) build -C $(MIXED_OLDER)/src -trimpath -buildvcs=false -ldflags '-X github.com/millrace/millrace/internal/build.version=$(MIXED_REF)' -o ../millrace ./cmd/millrace; rm -rf $(MIXED_OLDER)/src; \
		fi; \
		$(GO) build -o $(BIN)/mixed ./e2e/mixed; \
		$(BIN)/mixed -older $(MIXED_OLDER)/millrace -newer $(BIN)/millrace -ref '$(MIXED_REF)' -time $(MIXED_TIME) $(MIXED_FLAGS); \
	else \
		echo "mixed: skipped: $(MIXED_REF) is not in this clone (git fetch --unshallow, or MIXED_REF=...)"; \
	fi

.PHONY: lint
lint: $(TOOLS)/golangci-lint-$(GOLANGCI) proto-check ## Run the linters
	$< run ./...
	@for m in $(MODULES); do (cd $$m && $< run ./...) || exit 1; done
	$(GO) vet -tags nosarama ./app

$(TOOLS)/golangci-lint-$(GOLANGCI):
	GOBIN=$(TOOLS) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI)
	mv $(TOOLS)/golangci-lint $@

.PHONY: fmt
fmt: ## Format the code
	gofmt -w $$(git ls-files '*.go')

.PHONY: graphql
graphql: ## Make Go of the GraphQL schema in api/graphql
	cd api/graphql && $(GO) tool gqlgen generate --config gqlgen.yml

# buf comes with npm; where there is none, it is built from its Go module, which takes a
# few minutes once.
$(BUF):
	@mkdir -p $(TOOLS)/buf-$(BUF_VERSION)
	if command -v npm >/dev/null; then \
		npm install --prefix $(TOOLS)/buf-$(BUF_VERSION) --no-save --ignore-scripts --no-audit --no-fund --loglevel=error @bufbuild/buf@$(BUF_VERSION); \
	else \
		GOBIN=$(dir $(BUF)) $(GO) install github.com/bufbuild/buf/cmd/buf@v$(BUF_VERSION); \
	fi

# Text of protobuf has no fixed form, so what it means is compared.
SAME_BASELINE = [ "$$($(BUF) build --exclude-source-info -o - | sha256sum)" = "$$($(BUF) build baseline.txtpb --exclude-source-info -o - | sha256sum)" ]

# baseline.txtpb is the contract that others hold to. It grows with what is added; a change
# that would break them stops here, before anything is written.
.PHONY: proto-gen
proto-gen: $(BUF) ## Make Go of the protobuf files in api/proto
	cd api/proto && $(BUF) format -w && $(BUF) lint && $(BUF) breaking --against baseline.txtpb
	cd api/proto && $(BUF) generate
	$(SDK_PB)/generate.sh $(BUF) api/proto/workflow/v1/engine.proto $(SDK_PB)
	@cd api/proto && $(SAME_BASELINE) || $(BUF) build --exclude-source-info -o baseline.txtpb

.PHONY: proto-check
proto-check: $(BUF) ## Check the protobuf files: style, breaking changes, generated code
	cd api/proto && $(BUF) lint && $(BUF) format --diff --exit-code && $(BUF) breaking --against baseline.txtpb
	@fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT && cd api/proto && \
		$(BUF) generate -o "$$fresh" && \
		for f in $$(cd "$$fresh" && find * -name '*.pb.go'); do \
			cmp "$$fresh/$$f" "$$f" || { echo "api/proto/$$f is not what the protobuf files say: run make proto-gen"; exit 1; }; \
		done && \
		$(SAME_BASELINE) || { echo "api/proto/baseline.txtpb is behind: run make proto-gen"; exit 1; }
	@fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT && \
		$(SDK_PB)/generate.sh $(BUF) api/proto/workflow/v1/engine.proto "$$fresh" && \
		cmp "$$fresh/engine.pb.go" $(SDK_PB)/engine.pb.go || { echo "$(SDK_PB) is not what engine.proto says: run make proto-gen"; exit 1; }

.PHONY: generate
generate: graphql proto-gen ## Write the generated files anew: GraphQL, protobuf, schemas, golden files, reference pages
	$(GO) test ./topics -run 'TestSchemas|TestGolden' -update
	$(GO) test ./internal/execution -run TestDiagram -update
	$(GO) test ./configs -run TestReference -update

.PHONY: verify
verify: generate ## Check that the generated files are up to date
	git diff --exit-code

.PHONY: fuzz
fuzz: ## Fuzz the readers of untrusted input, 30 s each
	@for target in $$(grep -rlE '^func Fuzz' --include='*_test.go' . | xargs -n1 dirname | sort -u); do \
		for f in $$(grep -hoE '^func (Fuzz[A-Za-z0-9_]+)' $$target/*_test.go | awk '{print $$2}'); do \
			echo "$$target $$f"; $(GO) test $$target -run '^$$' -fuzz "^$$f$$" -fuzztime 30s || exit 1; \
		done; \
	done
