# `make demo` shows what regard does, `make test` runs every test; both set up .venv by themselves.
PYTHON ?= python3.11
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test lint check coverage wheel bench docs site fuzz kills sanitize clean

demo: $(READY)
	@echo; $(BIN)/regard why --word es --all --html it.html \
	  "The animal didn't cross the street because it was too tired."
	@printf '\n%s\n' "it.html: the same in the browser, with links to cut; regard serve: your own sentences."

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	@if command -v npm >/dev/null; then \
	  npm install --silent --no-package-lock && npm run --silent check; \
	else echo "npm is absent: the JavaScript is not checked"; fi

check: lint test

# The suite again, counting which lines of src ran; fails below the share in pyproject.toml.
coverage: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal --cov --cov-report=term:skip-covered

# Builds the wheel and the source archive in build/dist and tries the wheel in an empty environment.
wheel: $(READY)
	$(BIN)/python .ci/wheel

bench: $(READY)
	$(BIN)/python benchmarks/operation.py

SECONDS ?= 600
N ?= 100

# Random calls, damaged files, command lines and requests, for so many seconds in all.
fuzz: $(READY)
	$(BIN)/python -m fuzz --seconds $(SECONDS)

# Training killed so many times, resumed, and compared with an uninterrupted run.
kills: $(READY)
	$(BIN)/python -m fuzz.kills --kills $(N)

# The native operators built with address and undefined-behaviour sanitizers, under the kernel tests.
SANITIZERS = -fsanitize=address,undefined -fno-sanitize-recover=undefined -O1 -g
sanitize: $(READY)
	XDG_CACHE_HOME=$$(mktemp -d) CXX="g++ $(SANITIZERS)" ASAN_OPTIONS=detect_leaks=0 \
	  LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libubsan.so)" \
	  $(BIN)/python -m pytest -q -p no:cacheprovider tests/native/test_operators.py \
	  tests/native/test_operator_rules.py tests/native/test_products.py tests/native/test_int8.py \
	  tests/nn/test_stepping.py tests/attention/test_extremes.py tests/attention/test_onnx.py

# Runs every page of the docs and writes its outputs and pictures anew.
docs: $(READY)
	$(BIN)/python docs/run.py
	$(BIN)/python docs/screenshots.py

# The documentation as a site that needs no network, in build/site.
site: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo build/site/index.html

# pip build isolation would fetch a torch of its own; hatchling comes from the constraints instead.
$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv || python3 -m venv .venv
	$(BIN)/python -m pip install -q -c constraints.txt torch
	$(BIN)/python -m pip install -q -c constraints.txt hatchling editables
	$(BIN)/python -m pip install -q -c constraints.txt --no-build-isolation -e '.[dev]'
	touch $@

clean:
	rm -rf .venv node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis
