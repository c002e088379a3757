# Two commands matter: `make run` shows Lyra at work, `make test` shows that it works; `make verify` tries it at length.
# Everything is installed into .venv, once; pyproject.toml says what.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

# For the long commands: make sim N=10000 SEED=7
COUNT = $(if $(N),--n $(N)) $(if $(SEED),--seed $(SEED))

# The files with tests that take the time: only they are read for those tests.
TIMED = $$(grep -rl --include='*.py' 'mark\.timed' tests)

# The files with tests of random cases, of which `make test` tries a part.
RANDOM = $$(grep -rlE --include='test_*.py' 'import given|tests\.cases' tests)

# Compiled modules are kept, also where the environment says not to: the tests start many interpreters.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help help-all run web test check versions lint style imports types types-of-tests tests timed verify cases payments sim partitions crash damage races fuzz vegacrash servercrash gatewaycrash vegaedits vegafaults parallel tiers soak scale ended recovery security tasks surface mutants bench compare docs coverage clean postgres iproute2 redis otp erlang bubblewrap ripgrep node tools chromium lua litellm peers nodes

# The targets of every day.
DAILY = run web check test verify sim crash security bench docs help-all

help: ## Show the commands of every day
	@awk -F ':.*## ' 'BEGIN { split("$(DAILY)", names, " "); for (at in names) daily[names[at]] } \
		/^[a-z-]+:.*## / && $$1 in daily { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

help-all: ## Show every command
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

run: $(VENV)/.installed ## Run a team of agents in Vega, live: three reviewers, a crash, a budget; no key, no server
	@$(BIN)/vega run examples/review_team.vega --live $(ARGS)

web: $(VENV)/.installed-web ## Serve a team of agents and open its page in the browser; no key
	@$(BIN)/lyra demo --web $(ARGS)

test: export LYRA_TESTS_SKIPS = $(CURDIR)/$(VENV)/.skips
test: style postgres iproute2 redis erlang bubblewrap ripgrep node tools chromium ## Run every check and every test but the long ones; ends with what was skipped, and why
	@rm -f $(VENV)/.skips
	@failed=0; \
	$(MAKE) --no-print-directory --jobs 3 types imports tests MARKED="not timed and not long" || failed=1; \
	$(MAKE) --no-print-directory timed MARKED="timed and not long" || failed=1; \
	$(BIN)/python -m tests.skips $(VENV)/.skips || failed=1; \
	exit $$failed

verify: $(VENV)/.installed-check postgres iproute2 redis erlang bubblewrap ripgrep node tools chromium ## Run the long tests, which `make test` leaves out: every kill, task, attack and benchmark, other type checkers
	@failed=0; \
	$(MAKE) --no-print-directory --jobs 2 types-of-tests tests MARKED="long and not timed" || failed=1; \
	$(MAKE) --no-print-directory timed MARKED="long and timed" || failed=1; \
	exit $$failed

check: style ## Run the quick part: format, lint, types, imports, unit tests
	@$(MAKE) --no-print-directory --jobs 3 types imports tests MARKED="not slow and not timed"

versions: ## Run the quick part with each Python from 3.11 on that is found (on the path, or pyenv's)
	@.ci/versions

lint: style imports types-of-tests

# mypy has work for one processor: it runs beside the tests. The types of the tests themselves take as long again:
# `make lint` and `make verify` check them.
types: $(VENV)/.installed-check
	$(BIN)/mypy src/lyra codegen verify examples

types-of-tests: $(VENV)/.installed-check
	$(BIN)/mypy

tests: $(VENV)/.installed-check
	@rm -f .pytest_cache/v/cache/lastfailed  # tests.again reads the failures of this run there
	$(BIN)/python -m pytest -m "$(MARKED)" --forks auto $(ARGS) || $(BIN)/python -m tests.again $$?

# Exit code 5 of pytest: no timed test among those asked for.
timed: $(VENV)/.installed-check
	@$(BIN)/python -m pytest -m "$(MARKED)" $(or $(ARGS),$(TIMED)) || { status=$$?; test $$status -eq 5 || $(BIN)/python -m tests.again $$status; }

style: $(VENV)/.installed-check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

imports: $(VENV)/.installed-check
	$(BIN)/lint-imports

cases: $(VENV)/.installed-check ## Run the tests of random cases with all their cases; `make test` tries an eighth
	LYRA_TESTS_ALL_CASES=1 $(BIN)/python -m pytest -m "not timed" --forks auto $(or $(ARGS),$(RANDOM))

payments: $(VENV)/.installed-check ## Charge duplicate and concurrent payments in every mode of Vesper (N=…)
	LYRA_PAYMENTS=$(or $(N),1000) $(BIN)/pytest -q tests/vesper/runtime/test_duplicate_payments.py

sim: $(VENV)/.installed-check ## Run seeded worlds with faults: one kernel, and clusters of several hosts (N=…, SEED=…)
	$(BIN)/python -m verify sim $(COUNT)
	$(BIN)/python -m verify sim-cluster $(COUNT)

partitions: $(VENV)/.installed-check postgres iproute2 ## Part real hosts in network namespaces, kill and freeze them (N=…, SEED=…)
	$(BIN)/python -m verify partitions $(COUNT)

crash: $(VENV)/.installed-check ## Kill real processes with SIGKILL and resume them (N=…, SEED=…)
	$(BIN)/python -m verify crash $(COUNT)

damage: $(VENV)/.installed-check ## Damage store files and open them again (N=…, SEED=…)
	$(BIN)/python -m verify damage $(COUNT)

races: $(VENV)/.installed-check ## Spend from one budget at once (N=…, SEED=…)
	$(BIN)/python -m verify races $(COUNT)

security: $(VENV)/.installed-check bubblewrap ## Try to leave the sandbox, win races for a path, and talk agents into harm (N=…, SEED=…)
	$(BIN)/python -m pytest tests/sandbox
	$(BIN)/python -m verify security $(COUNT)

tasks: $(VENV)/.installed-check bubblewrap ripgrep node ## Have Sage solve the tasks of verify/tasks, by a script or with a real model (MODEL=…)
	$(BIN)/python -m verify sage-tasks $(if $(MODEL),--model $(MODEL)) $(ARGS)

otp: $(VENV)/.installed-check erlang ## Run random traces on Erlang's supervisors and ours (N=…, SEED=…)
	$(BIN)/python -m verify otp $(COUNT)

fuzz: $(VENV)/.installed-check ## Give readers bad input by the thousand (N=…, SEED=…)
	$(BIN)/python -m verify fuzz $(COUNT)

parallel: $(VENV)/.installed-check ## Run random Vega programs and Python functions line by line and with overlap (N=…, SEED=…)
	$(BIN)/python -m verify vega-parallel $(COUNT)
	$(BIN)/python -m verify parallel-python $(COUNT)

vegacrash: $(VENV)/.installed-check ## Kill runs of Vega programs with SIGKILL and go on with them (N=…, SEED=…)
	$(BIN)/python -m verify vega-crash $(COUNT)

servercrash: $(VENV)/.installed-check postgres ## Kill lyra serve with SIGKILL under load, on SQLite and PostgreSQL (N=…, SEED=…)
	$(BIN)/python -m verify server-crash $(COUNT)

gatewaycrash: $(VENV)/.installed-check postgres ## Attack budgets of the gateway, and kill it in the middle of calls (N=…, SEED=…)
	$(BIN)/python -m verify gateway-crash $(COUNT)

vegaedits: $(VENV)/.installed-check ## Kill runs of Vega programs, edit them at random and go on (N=…, SEED=…)
	$(BIN)/python -m verify vega-edits $(COUNT)

vegafaults: $(VENV)/.installed-check ## Run Vega programs on a model that crashes, refuses and hangs (N=…, SEED=…)
	$(BIN)/python -m verify vega-faults $(COUNT)

tiers: $(VENV)/.installed-check ## Run random Vega functions and programs interpreted, as generated code and as a tree (N=…, SEED=…)
	$(BIN)/python -m verify vega-tiers $(COUNT)
	VEGA_PROGRAMS=$(or $(N),1500) VEGA_SEED=$(or $(SEED),6) $(BIN)/python -m pytest tests/vega/machine/test_random_programs.py

nodes: $(VENV)/.installed-check ## Compare the two paths of the example nodes on 110 000 accepted inputs each (N=…, SEED=…; ARGS=--all: nodes of tests, too)
	$(BIN)/python -m verify vesper-nodes $(COUNT) $(ARGS)

soak: $(VENV)/.installed-check postgres ## Run thousands of supervised processes for ten minutes, then a cluster whose hosts are killed (N=…, SEED=…)
	$(BIN)/python -m verify soak $(COUNT)
	$(BIN)/python -m verify cluster-soak $(if $(SEED),--seed $(SEED))

scale: $(VENV)/.installed-check ## Play a cluster of a thousand hosts in virtual time: take-over and balance stay bounded (N=…, SEED=…)
	$(BIN)/python -m verify scale $(COUNT)

ended: $(VENV)/.installed-check ## End a million processes in one kernel; steps of the loop and memory must not grow (N=…)
	$(BIN)/python -m verify ended $(COUNT)

recovery: $(VENV)/.installed-check ## Recover a large journal and take the time
	$(BIN)/python -m verify recovery

# Which tests use which entry of the surface, and call which function of the sampled changes.
USES = $(VENV)/uses

$(USES)/main.json: $(VENV)/.installed-check
	@rm -rf $(USES) && mkdir -p $(USES)
	-LYRA_TESTS_USES=$(CURDIR)/$(USES) $(BIN)/python -m pytest -p verify.recorder -m "not timed" --forks auto --tb=no

surface: $(USES)/main.json ## Find the tests of new entries of the surface; switch each entry off, and look that a test fails
	$(BIN)/python -m verify surface --uses $(USES)
	$(BIN)/python -m verify surface --again --uses $(USES) $(if $(N),--n $(N))

mutants: $(USES)/main.json ## Change one small thing in the source at a time, and look that a test fails (N=…)
	$(BIN)/python -m verify mutants --uses $(USES) $(if $(N),--n $(N))

bench: $(VENV)/.installed-bench lua litellm peers ## Measure speed and memory
	$(BIN)/python -m benchmarks $(ARGS)

compare: $(VENV)/.installed-check tools ## Do ten tasks in real projects with Sage, claude and codex, and measure them
	$(BIN)/python -m verify.compare.code_agents $(ARGS)

docs: $(VENV)/.installed-check ## Write the reference pages and the pictures anew from the code
	$(BIN)/python -m verify reference
	$(BIN)/python -m verify structure --svg
	$(BIN)/python -m verify screenshots
	$(BIN)/python -m verify surface

coverage: $(VENV)/.installed-check ## Run the tests and show which branches they miss
	$(BIN)/coverage erase
	-$(BIN)/coverage run -m pytest -m "not timed" -n auto --dist worksteal $(ARGS)  # tests of time and memory may fail under it
	$(BIN)/coverage combine -q
	$(BIN)/coverage report

clean: ## Remove everything that make made
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage* htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The tests of the PostgreSQL store start a server of their own; where none can be installed they are skipped.
postgres:
	@.ci/postgres

# Hosts of a cluster are parted from each other in network namespaces; where none can be made those tests are skipped.
iproute2:
	@.ci/iproute2

# Kept results of Vesper's nodes are tested with a Redis of their own; where none can be installed they are skipped.
redis:
	@.ci/redis

# Supervisors are compared with Erlang's own; where it cannot be installed those tests are skipped.
erlang:
	@.ci/erlang

# The best tier of the sandbox is tested where bubblewrap can be installed; without it, the second tier alone.
bubblewrap:
	@.ci/bubblewrap

# Grep is compared with ripgrep where it can be installed.
ripgrep:
	@.ci/ripgrep

# Vega's generated code is measured beside Lua's where that can be installed.
lua:
	@.ci/lua

# The gateway is measured beside the LiteLLM proxy where that can be installed.
litellm:
	@PYTHON=$(PYTHON) .ci/litellm

# Agents are measured beside other frameworks where those can be installed.
peers:
	@PYTHON=$(PYTHON) .ci/peers

# MCP is tested with servers from npm and the conformance suite, where npm can install them.
node:
	@.ci/node

# The gateway is tested and Sage is compared with the command-line tools codex and claude, where npm can install them.
tools:
	@.ci/tools

# The pages of the dashboard are tested in Chromium where it can be installed.
chromium:
	@.ci/chromium

# ---------------------------------------------------------------- what is installed, once
$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Lyra needs Python 3.11 or newer: make PYTHON=python3.12 …"; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
		|| { rm -rf $(VENV); echo "no virtual environment could be made; on Debian: apt-get install python3-venv"; exit 1; }
	@touch $@

$(VENV)/.installed: $(VENV)/.made pyproject.toml hatch_build.py proto/lyra/engine/v1/engine.proto
	@echo "installing lyra into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.installed-web: $(VENV)/.installed
	@echo "installing what the server needs into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[server]'
	@touch $@

$(VENV)/.installed-check: $(VENV)/.made pyproject.toml hatch_build.py proto/lyra/engine/v1/engine.proto
	@echo "installing lyra and the tools of its tests into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -e '.[check]'
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true  # pip would use one processor; some files are templates
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-bench: $(VENV)/.installed-check
	@echo "installing the peers that the benchmarks compare with into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	@touch $@
