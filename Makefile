# `make demo` prepares a small model, serves it and asks it a question; `make test` runs every check.
#
# Needed on the machine: Python 3.11 or newer with venv, a Rust toolchain, g++ 12 or newer, make and a package registry.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
UV_VERSION := 0.13.9
UV := build/uv/$(UV_VERSION)/bin/uv
VENV := .venv/bin

# The machine's interpreter is used; uv must not look for another one.
export UV_PYTHON := $(PYTHON)
export UV_PYTHON_DOWNLOADS := never

.NOTPARALLEL:
.PHONY: help setup demo test lint test-rust test-python test-agents clean

help:
	@echo 'make demo          prepare SmolLM2-135M-Instruct, serve it and ask one question (ONCE=1: then exit)'
	@echo 'make test          set up, lint, and run every test'
	@echo 'make test-agents   install coding agents from npm and let them drive the server'
	@echo 'make setup         create or update the environment only'
	@echo 'make clean         remove build outputs and the environment'

$(UV):
	rm -rf build/uv
	$(PYTHON) -m venv build/uv/$(UV_VERSION)
	build/uv/$(UV_VERSION)/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

setup: $(UV)
	$(UV) sync --locked --quiet

demo: setup
	cargo build --release --locked --package flare
	$(VENV)/python -m scripts.demo $(if $(ONCE),--once)

test: lint test-rust test-python

lint: setup
	$(VENV)/ruff check .
	$(VENV)/ruff format --check .
	$(VENV)/mypy
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings

# --all-targets resolves the features of `cargo test`, so the end-to-end tests' server is linked without building twice.
test-rust: setup
	cargo build --locked --workspace --all-targets
	cargo test --locked --workspace

test-python: test-rust
	$(VENV)/pytest

# Not a part of `make test`: the agents take a gigabyte, and are not ours.
test-agents: setup
	cargo build --locked --workspace --all-targets
	$(VENV)/python -m scripts.agents

clean:
	rm -rf build target .venv
