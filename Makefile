# `make` alone lists the targets. Every target installs what it needs, says what it does, and ends
# at once when there is nothing to do. One build (the dev profile) serves demo, test and lint.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup wheel demo learn recipes up test test-long test-vllm test-sglang chaos fuzz mutants lint parity agreement bench-engine bench-engines bench-train bench-gpu gpu-pack bench build check-fresh clean

CONFIG ?= configs/signal.toml
LEARN ?= learn configs/arithmetic.toml
BENCH ?=
CONVERSATIONS ?=
FAULTS ?=
SEED ?=
PAUSE ?=
ARGS ?=
STEPS ?=
GPU ?=

export PATH := $(HOME)/.cargo/bin:$(PATH)
# Binaries find a libtorch that LIBTORCH names at run time too.
ifneq ($(LIBTORCH),)
export LD_LIBRARY_PATH := $(LIBTORCH)/lib$(if $(LD_LIBRARY_PATH),:$(LD_LIBRARY_PATH))
endif
# Python with pika, for the tests that publish from Python.
export DYAD_TEST_PYTHON := $(CURDIR)/tests/.venv/bin/python

phase := @tests/setup/phase.sh
machine := tests/setup/machine.sh
dyad := target/debug/dyad
# Long tests mostly wait: one thread more than cores keeps the others running meanwhile.
export NEXTEST_TEST_THREADS ?= $(shell echo $$(($$(nproc) + 1)))
# Starts one RabbitMQ for the tests of a command. Without it each test starts its own.
shared := target/debug/shared-rabbitmq
# Used where it is installed; plain `cargo test` passes as well.
nextest := $(shell PATH="$(PATH)" command -v cargo-nextest 2>/dev/null)

help: ## this page
	@echo "dyad: two language-model agents that train each other. Begin with:"
	@echo
	@echo "    make demo        a and b invent a language on this machine (first time 8 to 12 minutes, most of it building)"
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
	$(phase) "build" "first time 7 to 11 minutes on 2 cores, then seconds" cargo build --workspace

wheel: setup ## target/wheel/dyad-*.whl for GPU hosts, where pip installs it with torch==2.11.0
	$(phase) "build" "first time half an hour on 2 cores" cargo build --release --locked --package agents --bins
	$(phase) "wheel" "half a minute" python3 agents/wheel.py target/release

demo: build ## run configs/signal.toml in one process, no servers; ends with a report
	$(phase) "demo" "20 seconds to a minute" $(dyad) run $(CONFIG) $(ARGS)

learn: build ## before and after, cross-play, team against solo, 3 seeds; LEARN='learn configs/guess-number.toml' for another
	$(phase) "learn" "about 20 minutes" $(dyad) $(LEARN) $(ARGS)

recipes: build ## every recipe that needs no model folder, over a private RabbitMQ and Redis, and one table; STEPS=20 shortens
	$(phase) "servers and clients" "seconds; apt-get and pip where they are missing" $(machine) servers clients
	$(phase) "recipes" "12 to 30 minutes; with STEPS=20 a few" env DYAD_PYTHON=$(DYAD_TEST_PYTHON) $(dyad) recipes $(if $(STEPS),--steps $(STEPS)) $(ARGS)

up: build ## the same as processes, over a private RabbitMQ and Redis
	$(phase) "servers" "seconds; apt-get where they are missing" $(machine) servers
	$(phase) "up" "until done, or Ctrl-C" $(dyad) up $(CONFIG) $(ARGS)

test: build ## all tests, those with real RabbitMQ and Redis too
	$(phase) "servers and clients" "seconds; apt-get and pip where they are missing, Chromium, Prometheus and a collector too" $(machine) servers clients browser prometheus collector
	$(phase) "build tests" "first time about 5 minutes, then seconds" cargo test --workspace --no-run --quiet
ifneq ($(nextest),)
	$(phase) "doc tests" "seconds" cargo test --workspace --doc --quiet
ifeq ($(ARGS),)
	$(phase) "unit tests" "2 to 5 minutes on 2 cores" cargo test --workspace --lib --quiet
endif
	$(phase) "other tests" "12 to 23 minutes on 2 cores" $(shared) cargo nextest run --workspace $(or $(ARGS),-E 'not kind(lib)')
else
	$(phase) "tests" "20 minutes or more" $(shared) cargo test --workspace $(ARGS)
endif

test-long: build ## what is slow and rarely fails: commands of pages, other people's clients
	$(phase) "servers and clients" "seconds; apt-get and pip where they are missing" $(machine) servers clients field prometheus
	$(phase) "build tests" "first time about 6 minutes, then seconds" cargo test --workspace --lib --test it --examples --no-run --quiet
	$(phase) "long tests" "about 25 minutes" $(shared) cargo test --workspace --lib --test it -- --ignored --test-threads 2

test-vllm: build ## trains over real vLLM servers on the CPU (Python of its own, 6.4 GB once); ARGS='swap_modes' for some
	$(phase) "servers" "seconds; apt-get where they are missing" $(machine) servers venv
	$(phase) "python and model" "6.4 GB once, then nothing" tests/foreign/environment.sh vllm
	$(phase) "vllm" "about 25 minutes on 2 cores" tests/foreign/run.py vllm $(ARGS)

test-sglang: build ## the same over real SGLang servers (Python of its own, 11 GB once, and that of test-vllm)
	$(phase) "servers" "seconds; apt-get where they are missing" $(machine) servers venv
	$(phase) "python and model" "18 GB once, then nothing" tests/foreign/environment.sh sglang
	$(phase) "sglang" "about 25 minutes on 2 cores" tests/foreign/run.py sglang $(ARGS)

chaos: build ## random kills and faults; CONVERSATIONS=300 FAULTS=30 SEED=1 PAUSE=0 (seconds between faults)
	$(phase) "servers" "seconds; apt-get where they are missing" $(machine) servers
	$(phase) "build tests" "first time about 5 minutes, then seconds" cargo test --workspace --test it --no-run --quiet
	$(phase) "chaos" "about 3 seconds a fault" env DYAD_CHAOS_CONVERSATIONS=$(CONVERSATIONS) DYAD_CHAOS_FAULTS=$(FAULTS) \
	    DYAD_CHAOS_SEED=$(SEED) DYAD_CHAOS_PAUSE=$(PAUSE) cargo test --workspace --test it chaos -- --nocapture

fuzz: build ## damaged input for every decoder; SECONDS=60 for each of them
	$(phase) "build tests" "first time about 5 minutes, then seconds" cargo test --workspace --test it --no-run --quiet
	$(phase) "fuzz" "a minute for each of a dozen" env DYAD_FUZZ_SECONDS=$(or $(SECONDS),60) \
	    cargo test --workspace --test it fuzz:: -- --nocapture --test-threads 1

mutants: build ## takes one guard away at a time: a named test must fail each time; ARGS='store. bus.' for some
	$(phase) "servers" "seconds; apt-get where they are missing" $(machine) servers
	$(phase) "mutants" "a build of the crates' tests, then about 3 minutes" tests/mutants.py $(ARGS)

lint: setup ## formatting, width of comments, clippy with warnings as errors, cargo-deny where installed
	$(phase) "format" "a second" cargo fmt --all --check
	$(phase) "comments" "a second" tests/setup/width.sh
	$(phase) "clippy" "first time about 3 minutes, then seconds" cargo clippy --workspace --all-targets -- -D warnings
	$(phase) "licences and advisories" "seconds" tests/setup/deny.sh

# Python with the torch, transformers, peft and trl that the fixtures were made with.
PARITY := trainer/fixtures/.venv/bin/python
parity: build ## models, adapters, losses, AdamW, chat templates: made anew by transformers, peft and trl, and compared (Python, 5 GB once)
	$(phase) "venv" "seconds; apt-get where it is missing" $(machine) venv
	$(phase) "python" "5 GB once, then nothing" trainer/python.sh fixtures
	$(phase) "models and adapters" "about a minute" $(PARITY) trainer/fixtures/models.py target/parity/models
	$(phase) "loss and optimizer steps" "seconds" $(PARITY) trainer/fixtures/make.py target/parity
	$(phase) "losses and advantages of TRL" "half a minute" $(PARITY) trainer/fixtures/losses.py target/parity/losses.json
	$(phase) "chat templates" "half a minute" $(PARITY) rollout/golden/make.py target/parity/golden
	$(phase) "fixtures as committed" "a second" $(PARITY) trainer/fixtures/compare.py trainer/fixtures target/parity
	$(phase) "golden files as committed" "a second" $(PARITY) trainer/fixtures/compare.py rollout/golden target/parity/golden
	$(phase) "parity" "first time about a minute, then seconds" env DYAD_PARITY_FIXTURES=$(CURDIR)/target/parity \
		DYAD_PARITY_PYTHON=$(CURDIR)/$(PARITY) cargo test --workspace --lib parity $(ARGS)
	$(phase) "external trainer and torchrun" "a few minutes" env DYAD_PARITY_PYTHON=$(CURDIR)/$(PARITY) \
		cargo test --workspace --test it -- external:: torchrun

# The reference graders on pairs whose verdict is known; again after a change of dyad, seconds.
AGREEMENT := rollout/agreement/.venv/bin/python
agreement: build ## compares the graders with math_verify, DeepScaleR, verl and lm-eval on 25,000 pairs of known verdict (Python, 200 MB once, and a file of github.com)
	$(phase) "venv" "seconds; apt-get where it is missing" $(machine) venv
	$(phase) "python" "200 MB once, then nothing" trainer/python.sh ../rollout/agreement
	$(phase) "packages" "seconds" $(AGREEMENT) -m pip install --quiet --no-deps --requirement rollout/agreement/packages.txt
	$(phase) "pairs" "seconds" $(AGREEMENT) rollout/agreement/pairs.py target/agreement/pairs.jsonl
	$(phase) "compare" "first time about 20 minutes, then seconds" $(AGREEMENT) rollout/agreement/compare.py target/agreement/pairs.jsonl $(ARGS)

bench-engine: build ## tokens per second beside transformers' generate(), one thread, f32 (Python as for parity)
	$(phase) "venv" "seconds; apt-get where it is missing" $(machine) venv
	$(phase) "python" "5 GB once, then nothing" trainer/python.sh fixtures
	$(phase) "worker" "first time about a minute, then seconds" cargo build --workspace --example engine_work
	$(phase) "bench" "about a quarter of an hour" env OMP_NUM_THREADS=1 $(PARITY) trainer/bench/engine.py target/debug/examples/engine_work $(ARGS)

bench-engines: build ## the engine beside vLLM, transformers and llama.cpp on SmolLM2-135M (Python of test-vllm)
	$(phase) "venv" "seconds; apt-get where it is missing" $(machine) venv
	$(phase) "python and model" "6.4 GB once, then nothing" tests/foreign/environment.sh vllm
	$(phase) "worker" "first time about a minute, then seconds" cargo build --workspace --example engine_work
	$(phase) "bench" "about half an hour" tests/.venv-vllm/bin/python trainer/bench/engines.py target/debug/examples/engine_work \
	    tests/.venv-vllm/smollm2 $(ARGS)

bench-train: build ## a whole GRPO step beside TRL's GRPOTrainer, one thread, f32 (Python of its own, 5 GB once)
	$(phase) "venv" "seconds; apt-get where it is missing" $(machine) venv
	$(phase) "python" "5 GB once, then nothing" trainer/python.sh bench
	$(phase) "worker" "first time about a minute, then seconds" cargo build --workspace --example train_work
	$(phase) "bench" "about 15 minutes" env OMP_NUM_THREADS=1 trainer/bench/.venv/bin/python trainer/bench/train.py \
	    target/debug/examples/train_work $(ARGS)

bench-gpu: build ## parity and speed beside PyTorch eager, on a GPU (GPU=1); ARGS='--device cpu --tiny' tries the script
	$(phase) "venv" "seconds; apt-get where it is missing" $(machine) venv
	$(phase) "python" "5 GB once, then nothing" trainer/python.sh fixtures
	$(phase) "workers" "first time about a minute, then seconds" cargo build --workspace --example engine_work --example train_work
	$(phase) "bench" "some minutes" env OMP_NUM_THREADS=1 $(PARITY) trainer/bench/gpu.py target/debug/examples $(ARGS)

gpu-pack: build ## target/gpu: programs, tests and a script that checks them on a GPU host (4 minutes there)
	$(phase) "CUDA libraries" "2 GB once, then nothing" python3 trainer/libtorch/setup.py --gpu
	$(phase) "programs" "first time about a minute, then seconds" cargo build --workspace --bin dyad-full --example engine_work \
	    --example train_work --example ranks_bench
	$(phase) "tests" "first time about 5 minutes, then seconds" cargo test --workspace --lib --no-run --quiet
	$(phase) "pack" "a minute" trainer/bench/pack/make.sh target/debug target/gpu

bench: build ## figures beside a bare client on the same broker; BENCH=name for one
	$(phase) "servers" "seconds; apt-get where they are missing" $(machine) servers
	$(phase) "bench" "about 3 minutes" cargo bench --profile dev -p tests --bench $(or $(BENCH),turns) $(if $(ARGS),-- $(ARGS))

check-fresh: ## clone into an empty folder and run .ci/run there, as a stranger would
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && git clone -q . "$$folder/dyad" && "$$folder/dyad/.ci/run"

clean: ## remove what was built (libtorch and runs/ stay)
	rm -rf target tests/.venv
