# dyad. `make` alone says what there is. Every target brings what it needs, says what it does, and is instant when
# nothing is to do. One build (the dev profile) serves demo, test and lint.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup demo learn up test lint bench build check-fresh clean

CONFIG ?= configs/signal.toml
LEARN ?= learn configs/arithmetic.toml
BENCH ?=
ARGS ?=
GPU ?=

export PATH := $(HOME)/.cargo/bin:$(PATH)
# A libtorch of your own is found at run time too.
ifneq ($(LIBTORCH),)
export LD_LIBRARY_PATH := $(LIBTORCH)/lib$(if $(LD_LIBRARY_PATH),:$(LD_LIBRARY_PATH))
endif
# Python with pika, for the tests that publish from Python.
export DYAD_TEST_PYTHON := $(CURDIR)/tests/.venv/bin/python

phase := @tests/setup/phase.sh
machine := tests/setup/machine.sh
dyad := target/debug/dyad
# Used where it is installed; plain `cargo test` passes as well.
nextest := $(shell PATH="$(PATH)" command -v cargo-nextest 2>/dev/null)

help: ## this page
	@echo "dyad: two language-model agents that train each other. Begin with:"
	@echo
	@echo "    make demo        a and b invent a language on this machine (first time about 8 minutes, most of it building)"
	@echo
	@echo "and read README.md while it builds. All targets:"
	@echo
	@awk -F ':[^#]*## ' '/^[a-z-]+:.*## / {printf "    make %-12s %s\n", $$1, $$2}' Makefile
	@echo
	@echo "CONFIG=configs/arithmetic.toml chooses another run, ARGS='...' goes to dyad, GPU=1 takes the CUDA libraries too."

setup: ## compiler, libtorch (545 MB, once); GPU=1 adds the CUDA libraries (2 GB)
	$(phase) "machine" "seconds; apt-get where something is missing" $(machine) rust build
	$(phase) "libtorch" "545 MB once, then nothing" python3 trainer/libtorch/setup.py $(if $(GPU),--gpu)

build: setup ## only build
	$(phase) "build" "first time about 5 minutes on 2 cores, then seconds" cargo build --workspace

demo: build ## run configs/signal.toml in one process, no servers; ends with a report
	$(phase) "demo" "about a minute" $(dyad) run $(CONFIG) $(ARGS)

learn: build ## team against solo at equal tokens, 3 seeds
	$(phase) "learn" "about 20 minutes" $(dyad) $(LEARN) $(ARGS)

up: build ## the same as processes, over a private RabbitMQ and Redis
	$(phase) "servers" "seconds; apt-get where they are missing" $(machine) servers
	$(phase) "up" "until done, or Ctrl-C" $(dyad) up $(CONFIG) $(ARGS)

test: build ## all tests, those with real RabbitMQ and Redis too
	$(phase) "servers and clients" "seconds; apt-get and pip where they are missing" $(machine) servers clients
	$(phase) "build tests" "first time about 2 minutes, then seconds" cargo test --workspace --no-run --quiet
ifneq ($(nextest),)
	$(phase) "doc tests" "seconds" cargo test --workspace --doc --quiet
	$(phase) "tests" "about 5 minutes" cargo nextest run --workspace $(ARGS)
else
	$(phase) "tests" "about 5 minutes" cargo test --workspace $(ARGS)
endif

lint: setup ## formatting, clippy with warnings as errors, cargo-deny where installed
	$(phase) "format" "a second" cargo fmt --all --check
	$(phase) "clippy" "first time about 3 minutes, then seconds" cargo clippy --workspace --all-targets -- -D warnings
	$(phase) "licences and advisories" "seconds" tests/setup/deny.sh

bench: build ## figures beside a bare client on the same broker; BENCH=name for one
	$(phase) "servers" "seconds; apt-get where they are missing" $(machine) servers
	$(phase) "bench" "about 3 minutes" cargo bench --profile dev -p tests --bench $(or $(BENCH),turns) $(if $(ARGS),-- $(ARGS))

check-fresh: ## clone into an empty folder and run .ci/run there, as a stranger would
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && git clone -q . "$$folder/dyad" && "$$folder/dyad/.ci/run"

clean: ## remove what was built (libtorch and runs/ stay)
	rm -rf target tests/.venv
