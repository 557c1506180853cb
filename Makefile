# Everything a newcomer needs: `make demo` and `make test`.
# Each target sets up its own virtual environment under .venv first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SUITE ?= quick
THREADS ?= 1
# Two cores carry two processes of one BLAS thread: more would wait for each other.
JOBS ?= $(if $(filter 1,$(THREADS)),2,1)
BUSY ?= 16
SERVER ?= unrelu
REQUIRED ?=
STAMP := $(VENV)/.installed
DEMO := $(VENV)/.installed-for-the-demo
EXTRAS := onnx,sklearn,http,dask,exact,parquet,report

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test stress torch environments check format bench docs clean help

help: ## show this list
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("unrelu needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[$(EXTRAS)]" --group dev
	touch $@

# The demo needs neither the developers' tools nor other kinds of targets; where all is there
# already, nothing is installed.
$(DEMO): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("unrelu needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	@if [ ! -e $(STAMP) ]; then \
		echo "Installing what the demo runs into $(VENV): numpy, scipy, scikit-learn and a dozen small packages"; \
		echo "(most of the time goes into downloading them). Later calls skip this."; \
	fi
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	test -e $(STAMP) || $(BIN)/python -m pip install --progress-bar off --constraint constraints.txt --editable ".[demo]"
	@touch $@

demo: $(DEMO) ## train, serve, extract over HTTP, report (SERVER=mlserver for the real MLServer)
ifeq ($(SERVER),mlserver)
	PYTHON=$(PYTHON) REQUIRED=mlserver sh tests/environments.sh mlserver
endif
	$(BIN)/unrelu demo --server $(SERVER)

test: $(STAMP) ## run the default tests (under 10 minutes on 2 cores; THREADS=2 for two BLAS threads)
	OPENBLAS_NUM_THREADS=$(THREADS) OMP_NUM_THREADS=$(THREADS) $(BIN)/python -m pytest -n $(JOBS) $(ARGS)

stress: $(STAMP) ## run the default tests while 16 busy processes share the cores (an hour, two at most)
	$(BIN)/python tests/stress.py --busy $(BUSY) $(MAKE) test

torch: ## run the tests of torch and JAX in their environment (part of make environments)
	.venvs/torch/bin/python -m pytest -p no:cacheprovider tests/oracles/test_torch.py \
		tests/oracles/test_targets.py tests/core/test_fit_torch.py -k "torch or jax"

environments: ## install model servers, torch and a browser for the tests that use them
	PYTHON=$(PYTHON) REQUIRED="$(REQUIRED)" sh tests/environments.sh

check: $(STAMP) ## format, lint, strict types, import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP) ## rewrite the sources in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP) ## run the benchmarks (SUITE=full for all seeds)
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks --suite $(SUITE) --jobs $(JOBS)

docs: $(STAMP) ## build the site: pages are executed, links checked, warnings are errors
	rm -rf docs/_build/html docs/generated
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	$(BIN)/python docs/links.py docs/_build/html
	@echo "open docs/_build/html/index.html"

clean: ## remove what was built
	rm -rf $(VENV) build dist docs/_build .mypy_cache .ruff_cache .pytest_cache
