# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
# Compiled modules are kept, whatever the shell says: a suite starts Python some 200 times.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test chromium types soak bench site wheel clean \
  verify verify-kernels verify-dates verify-heavy verify-examples verify-mutants verify-supply
.DEFAULT_GOAL := demo

demo: .venv/installed
	$(BIN)/seq2see predict --dates=1845-01-05,1845-01-06,1426-08-10,2025-09-03
	$(BIN)/seq2see demo
	$(BIN)/seq2see predict --model en-fr "Where is the train station?"

# Workers of one thread each; a third one for two cores, since tests wait for browsers, servers and time limits.
test: .venv/tested chromium types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy > .venv/mypy.log 2>&1 & types=$$!; \
	  OMP_NUM_THREADS=1 $(BIN)/pytest -n 3 --dist worksteal -m "not heavy"; tests=$$?; \
	  wait $$types; types=$$?; cat .venv/mypy.log; test $$tests = 0 -a $$types = 0

# The browser of the page's tests: Debian's, since tests must not download one. Its shell without windows takes less than
# half of the processor time.
chromium:
	@command -v chromium-headless-shell > /dev/null || command -v chromium > /dev/null \
	  || { apt-get update -qq && apt-get install -y -qq chromium chromium-headless-shell > /dev/null; } \
	  || apt-get install -y -qq chromium > /dev/null \
	  || { echo "The page's tests need chromium: install it (apt-get install chromium), then run make test again."; exit 1; }

# The page's JSDoc types, where npm can bring the TypeScript compiler.
TSC := .venv/node/node_modules/.bin/tsc
types: .venv/tested
	@if test -x $(TSC) || { command -v npm > /dev/null \
	    && npm install --silent --no-fund --no-audit --prefix .venv/node typescript@5.9 > /dev/null 2>&1; }; \
	  then echo "$(TSC) -p jsconfig.json"; $(TSC) -p jsconfig.json; \
	  else echo "No npm, or no TypeScript from it: the types of the page's scripts are not checked."; fi

# Heavier proofs: every one of the 3,287,182 dates of the years 1000 to 9999, the GPU's kernels in Triton's interpreter
# (Triton is 0.9 GB, and kept apart), a Ray cluster of two workers, whether the tests notice a sample of small changes in
# the code, the project's site, and what others get: the wheel in a clean environment, and known holes in its packages.
# It takes hours on 2 cores: a part can be run alone (`make verify-heavy`), and `make -k verify` goes on after a failure.
verify: verify-kernels verify-dates verify-heavy verify-examples verify-mutants verify-supply
verify-kernels: .venv/tested .venv/interpreted
	TRITON_INTERPRET=1 PYTHONPATH=.venv/triton $(BIN)/python benchmarks/gpu_check.py kernels step choices
verify-dates: .venv/tested
	$(BIN)/seq2see evaluate dates --years 1000-9999 --at-least 1
verify-heavy: .venv/tested .venv/clustered .venv/site/installed
	THOROUGH=1 OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m heavy --durations 20
verify-examples: .venv/tested
	THOROUGH=1 OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m "not heavy" $$(grep -lE "= ?examples[(]" tests/test_*.py)
verify-mutants: .venv/tested
	$(BIN)/python tests/mutation.py
verify-supply: .venv/tools/installed
	.venv/tools/bin/python tests/supply_chain.py

# Everything that may go wrong, tried: kills, lost power, hostile folders, corrupt files, rude clients, a long load. Some
# 30 minutes on 2 cores; `make soak SCALE=0.1 SEED=2` tries less, and other things.
SCALE ?= 1
SEED ?= 1
soak: .venv/installed
	cd tests && ../$(BIN)/python -m soak --scale $(SCALE) --seed $(SEED)

# The interpreters of older versions fail with NumPy 2.4 (triton-lang/triton issue 9171).
.venv/interpreted: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --target .venv/triton --upgrade --no-deps "triton>=3.7"
	touch $@

.venv/clustered: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[train,ray]"
	touch $@

# Ours beside its peers; `make bench NAME=cold-start` runs one line. Peers: pip install -e ".[bench]".
NAME ?= all
bench: .venv/installed
	$(BIN)/python -m benchmarks $(NAME)

# What `pip install` gets: dist/*.whl, with all models in it.
wheel: .venv/tools/installed
	rm -rf dist
	.venv/tools/bin/python -m build --no-isolation --wheel --outdir dist
	@ls -l dist

# The project's own site, in site/: documents and lessons by Sphinx, and the models' pages, which answer. Any warning of
# Sphinx, such as a link that leads nowhere, is an error.
SITE ?= site
site: .venv/installed .venv/site/installed
	rm -rf build/site build/doctrees $(SITE)
	$(BIN)/python docs/site/models.py build/site/models
	.venv/site/bin/sphinx-build -q -W --keep-going -b html -c docs/site -d build/doctrees . $(SITE)

.venv/site/installed: docs/site/requirements.txt
	$(PYTHON) -m venv .venv/site
	.venv/site/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

.venv/installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[train]"
	touch $@

.venv/tools/installed: pyproject.toml
	$(PYTHON) -m venv .venv/tools
	.venv/tools/bin/python -m pip install --quiet --disable-pip-version-check build hatchling pip-audit
	touch $@

# The versions that the tests ran with. A Python or a machine for which one of them is not made gets those that fit.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
.venv/tested: pyproject.toml tests/requirements.lock
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) --constraint tests/requirements.lock || { echo "Not all pinned versions fit here: the newest that do."; $(PIP); }
	touch .venv/installed $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache
