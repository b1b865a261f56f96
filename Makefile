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
.PHONY: check test test-unit test-rust test-controlplane
check: ## inner loop: lint, types, unit and Rust tests
	python3 tools/stages.py install lint types test-unit test-rust

test: ## everything
	python3 tools/stages.py

test-unit: ## Python tests of every distribution
	$(PYTEST) -m "not engine and not controlplane and not cluster and not gpu" crds operator dra-plugin connector emulator cli tools

test-rust: ## Rust tests
	cargo test --workspace --release --quiet

test-controlplane: ## operator, plugin and policies against a real API server and scheduler, no cluster
	e2e/tools/build.py control-plane helm > /dev/null
	$(PYTEST) -m "controlplane and not engine and not gpu" e2e/controlplane charts operator dra-plugin

# --- cluster ---------------------------------------------------------------------------------------------------------
CLUSTER = PYTHONPATH=e2e $(RUN) python -m cluster

.PHONY: cluster-up cluster-down cluster-env
cluster-up: ## a kind cluster with HyMCache installed, from source alone
	$(CLUSTER) up

cluster-down: ## remove that cluster
	$(CLUSTER) down

cluster-env: ## settings of that cluster for a shell: eval "$$(make cluster-env)"
	@$(CLUSTER) env
