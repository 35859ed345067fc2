PYTHON ?= python3
UV ?= uv
ARGS ?=

BIN := .venv/bin
STAMP := .venv/.installed

HUDI_BUNDLE := hudi-spark3.5-bundle_2.12
HUDI_VERSION := 1.2.0
HUDI_JAR := .interop/$(HUDI_BUNDLE)-$(HUDI_VERSION).jar
PEER_STAMP := .interop/venv/.installed
CONNECT_STAMP := .interop/connect/.installed

.PHONY: help setup warm-up demo test check interop bench soak lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP) ## Make .venv with everything needed (the other targets do this themselves)

warm-up: $(STAMP) ## Compile the inner loops for this host and wait for it; setup starts that in the background
	@$(BIN)/lakebed warm-up

demo: $(STAMP) ## Show what lakebed does, on small tables that come with it
	@$(BIN)/lakebed demo

test: $(STAMP) ## Run the tests; ARGS="-k timeline" and the like are handed to pytest
	@$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder $(ARGS)

check: $(STAMP) ## Check format, lint, types and import layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

interop: $(STAMP) $(PEER_STAMP) $(CONNECT_STAMP) $(HUDI_JAR) ## Compare with Apache Hudi and hudi-rs (needs Java 17 and Maven)
	@$(BIN)/python -m pytest -m interop tests $(ARGS)

bench: $(STAMP) ## Measure
	@$(BIN)/python -m benchmarks $(ARGS)

soak: $(STAMP) ## Crash writers for minutes (ARGS="--minutes 5 --table-type mor --services 3") and check what they leave
	@$(BIN)/python -m tests.soak $(ARGS)

lock: ## Resolve pyproject.toml into requirements.lock (needs uv)
	@command -v $(UV) >/dev/null || { echo "make lock needs uv: pip install uv, or make lock UV=path/to/uv" >&2; exit 1; }
	$(UV) pip compile --quiet --no-python-downloads --universal --no-emit-index-url --generate-hashes --python-version 3.10 \
		--extra spark --extra jvm --group dev --custom-compile-command "make lock" pyproject.toml -o requirements.lock

clean: ## Remove what the targets made
	rm -rf .venv .interop .bench .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
		echo "lakebed needs Python 3.10 or newer, but $(PYTHON) is not. Name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@
	@$(BIN)/python -c 'from lakebed.kernels import warm; warm.start_in_background()'

$(PEER_STAMP): tests/interop/requirements.txt
	@mkdir -p .interop
	$(PYTHON) -m venv .interop/venv
	.interop/venv/bin/python -m pip install --quiet -r tests/interop/requirements.txt
	@touch $@

$(CONNECT_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --target .interop/connect \
		"grpcio>=1.76" "grpcio-status>=1.76" "googleapis-common-protos>=1.71" "zstandard>=0.25"
	@touch $@

$(HUDI_JAR):
	@command -v mvn >/dev/null || { echo "make interop needs Maven (mvn) to fetch the Apache Hudi bundle" >&2; exit 1; }
	@mkdir -p .interop
	mvn -q dependency:get -Dartifact=org.apache.hudi:$(HUDI_BUNDLE):$(HUDI_VERSION) -Dtransitive=false
	mvn -q dependency:copy -Dartifact=org.apache.hudi:$(HUDI_BUNDLE):$(HUDI_VERSION) -DoutputDirectory=.interop
