# One verb per need; `make help` lists them. CI calls the same verbs.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

export HYMCACHE_CACHE ?= $(HOME)/.cache/hymcache
UV = $(shell tools/bootstrap.sh)
RUN = $(UV) run --no-sync
PYTEST = $(RUN) pytest

.PHONY: help
help: ## list the verbs
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# --- workspace -------------------------------------------------------------------------------------------------------
.PHONY: install lint types gen fmt
install: ## Python workspace and Rust extension into .venv
	$(UV) sync --locked --all-packages

lint: ## style, layers, generated files, budgets
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) lint-imports
	$(RUN) python tools/gen.py --check
	$(RUN) python tools/gen_kubelet_stubs.py --check
	cargo fmt --all --check
	cargo clippy --all-targets --quiet -- -D warnings
	$(RUN) python tools/tidy.py

gen: ## write the generated files: CRDs, access rules, reference, kubelet stubs
	$(RUN) python tools/gen.py
	$(RUN) python tools/gen_kubelet_stubs.py

types: ## mypy strict
	$(RUN) mypy

fmt: ## format Python and Rust
	$(RUN) ruff check --fix-only --quiet .
	$(RUN) ruff format .
	cargo fmt --all

# --- tests -----------------------------------------------------------------------------------------------------------
.PHONY: check test test-unit test-rust mutants fuzz sanitize sanitize-address sanitize-threads test-engine test-controlplane device-dax
check: ## inner loop: lint, types, unit and Rust tests
	python3 tools/stages.py install lint types test-unit test-rust

test: ## everything
	python3 tools/stages.py

test-unit: ## Python tests of every distribution
	$(PYTEST) -n 2 -m "not engine and not controlplane and not cluster and not gpu" crds operator dra-plugin connector emulator cli tools bench e2e/cluster e2e/demo

test-rust: ## Rust tests
	cargo test --workspace --release --quiet

# One row per flush, fence and check of the region's protocol, one column per way to catch it when it is left out.
mutants: ## the table of what the region's protocol needs: each step left out, and what catches it
	cargo test -p hymcache-region --release --quiet --test adversary -- --ignored --nocapture mutants::table

FUZZ_BYTES ?= 100000000
FUZZ_FROM ?= 1000
fuzz: ## overwrite FUZZ_BYTES bytes of a region, seed by seed from FUZZ_FROM on, and use it
	HYMCACHE_FUZZ_BYTES=$(FUZZ_BYTES) HYMCACHE_FUZZ_FROM=$(FUZZ_FROM) \
		cargo test -p hymcache-region --quiet --test damage -- --nocapture fuzz

# The nightly toolchain, with what rustup installs by default: its standard library is not built for a sanitizer. For
# threads that takes the suppressions, which say why each is there.
SANITIZE = HYMCACHE_FLIP_MS=20000 cargo +nightly test --target $(shell rustc -vV | sed -n 's/^host: //p') --quiet
RACES = $(CURDIR)/connector/region/crates/region/tests/damage/races.supp
sanitize: sanitize-address sanitize-threads ## the region's Rust tests under AddressSanitizer, then under ThreadSanitizer

sanitize-address: ## copy kernels, region and its damage tests under AddressSanitizer and overflow checks
	CARGO_TARGET_DIR=target/address RUSTFLAGS="-Zsanitizer=address" \
		$(SANITIZE) -p hymcache-copy -p hymcache-region --lib --test damage --test kernels --test pieces --test line

sanitize-threads: ## processes of one host as threads, former epochs and damage in flight under ThreadSanitizer
	CARGO_TARGET_DIR=target/thread RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer" \
		TSAN_OPTIONS="suppressions=$(RACES)" \
		$(SANITIZE) -p hymcache-region --test damage -- neighbours flips epochs

test-engine: ## the connector on vLLM's scheduler without a model, and real servers through kills and damage
	python3 e2e/engine/environment.py -m pytest -o filterwarnings=default -m engine connector/vllm/tests/engine
	$(PYTEST) -m engine e2e/engine/tests

CONTROL_PLANES ?= 4 # side by side: these tests wait most of the time
test-controlplane: ## operator, plugin and policies against a real API server and scheduler, no cluster
	e2e/tools/build.py control-plane helm > /dev/null
	$(PYTEST) -n $(CONTROL_PLANES) --dist load --maxschedchunk 1 --durations 15 \
	  -m "controlplane and not engine and not gpu" e2e/controlplane charts operator dra-plugin

device-dax: ## the region on a device-dax node: a guest with emulated CXL memory, without KVM
	PYTHONPATH=e2e $(RUN) python -m devdax "$$(tools/artefact.py devdax --input e2e/devdax/packages.py -- python3 e2e/devdax/packages.py)" $(ARGS)

# --- demo ------------------------------------------------------------------------------------------------------------
.PHONY: demo demo-small
demo: install ## two vLLM servers on two emulated hosts share a prefix; DEMO_TOKENS, DEMO_REPEATS, DEMO_JSON, DEMO_KEEP
	@PYTHONPATH=e2e $(RUN) python -m demo

demo-small: ## the demo in its smallest size
	@DEMO_TOKENS=700 DEMO_REPEATS=1 DEMO_REGION_MIB=256 PYTHONPATH=e2e $(RUN) python -m demo

# --- benchmarks ------------------------------------------------------------------------------------------------------
.PHONY: bench-copy bench-region
bench-copy: ARGS ?= --floors --cpu-clock --rounds 11
bench-copy: ## copy kernels against memcpy of the same buffers; fails below a floor (ARGS="--json" and more: see its main.rs)
	cargo run --release --quiet -p hymcache-copy --example copybench -- $(ARGS)

bench-region: ## every figure of the region with floor and goal; fails below a floor (ARGS="--json", "--only own,lookup")
	PYTHONPATH=bench $(RUN) python -m figures $(ARGS)

.PHONY: soak-region
soak-region: ## campaigns against the region: kills, freezes, zombies, a million cycles; goes on where it ended (ARGS="--seed 2")
	PYTHONPATH=bench $(RUN) python -m soak $(ARGS)

.PHONY: bench-traces
bench-traces: ## hit rates of the region's eviction on Mooncake's traces beside LRU and ARC; fails below a floor (TRACES="--json" and more: see its main.rs)
	cargo run --release --quiet -p hymcache-region --example tracebench -- $(TRACES)

# --- cluster ---------------------------------------------------------------------------------------------------------
CLUSTER = PYTHONPATH=e2e $(RUN) python -m cluster

.PHONY: preflight cluster-up cluster-down cluster-clean cluster-env e2e
preflight: ## whether this machine can run everything: root, disk, Debian packages (installs those)
	PYTHONPATH=e2e python3 -m cluster.preflight

e2e: ## that cluster, every example on it, real engines; then the cluster is removed
	PYTHONPATH=e2e $(RUN) python -m cluster images
	$(PYTEST) -s -m cluster e2e/cluster

cluster-up: ## a kind cluster with HyMCache installed, from source alone
	$(CLUSTER) up

cluster-down: ## remove that cluster
	$(CLUSTER) down

cluster-clean: ## remove it and the container storage in the cache
	$(CLUSTER) clean

cluster-env: ## settings of that cluster for a shell: eval "$$(make cluster-env)"
	@$(CLUSTER) env
