# make demo    set up, run the quick suite on the default target, write reports/quick.html
# make test    set up, run every test
# make check   set up, format, lint, types, import contracts, tests
# make bench   set up, print the speed ratios that the README quotes
# make reference FROM="results/RUN ..."   the runs, the site and the picture that the repository shows

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
RUN    := $(BIN)/hyflash-bench

.PHONY: demo test check lint format bench reference setup fetch clean
.DEFAULT_GOAL := demo

demo: fetch
	@$(RUN) run quick --output-path results/quick; code=$$?; [ $$code -le 1 ] || exit $$code; \
	$(RUN) report results/quick -o reports/quick.html

test: fetch
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile

check: lint test

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: fetch
	$(BIN)/python benchmarks/generate.py
	$(BIN)/python benchmarks/decode.py
	$(BIN)/python benchmarks/verification.py
	$(BIN)/python benchmarks/loop.py
	$(BIN)/python benchmarks/prompt_lookup.py
	$(BIN)/python benchmarks/replay.py
	$(BIN)/python benchmarks/peak_memory.py
	$(BIN)/python benchmarks/meters.py
	$(BIN)/python benchmarks/analysis.py
	$(BIN)/python benchmarks/report.py
	$(BIN)/python benchmarks/drafters.py
	$(BIN)/python benchmarks/drafters.py --random --contexts 2048 131072

reference: setup
	@[ -n "$(FROM)" ] || { echo "error: say which runs: make reference FROM=\"results/RUN ...\"" >&2; exit 1; }
	$(BIN)/python benchmarks/reference.py $(FROM)

setup: $(VENV)/.installed

fetch: setup
	@$(RUN) fetch quick

# The stamp is written last, so an interrupted installation starts again and pip goes on from its cache.
$(VENV)/.installed: pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { \
	  echo "error: no $(PYTHON). Install Python 3.11 or newer, or say: make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: $(PYTHON) is `$(PYTHON) -V 2>&1`; 3.11 or newer is needed: make PYTHON=python3.11" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "error: no virtual environment could be made. On Debian: apt-get install python3-venv" >&2; exit 1; }
	@echo "Installing into $(VENV): 2 GB with a CPU build of torch, a few minutes the first time ..."
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet \
	    --constraint constraints.txt --editable '.[dev]' || { \
	  echo "error: pip could not install. Check the network and the free disk space (df -h .)," >&2; \
	  echo "       then say make again: what was downloaded is kept." >&2; exit 1; }
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info
