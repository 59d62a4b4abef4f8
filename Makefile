# `make` or `make help` lists what there is. One command runs everything: `make test`.

PYTHON  ?= python3
VENV    ?= .venv
SECONDS ?= 60
CYCLES  ?= 10
SEED    ?=
DEMO    ?=
SPARK   ?= yes
PYTHONS ?=
SETS    ?=
TESTS   ?=
REPORT  ?=
JOBS    ?= auto

BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DEMOED := $(VENV)/.installed-demo
SPARKED := $(VENV)/.installed-spark
# More than four would not end sooner: one of them has the tests that no two may run of at a time.
WORKERS := -n $(JOBS) --maxprocesses=4
CHECKED := src tests $(wildcard bench examples)

# Images for containers often set it. The tests start thousands of processes, and each would compile
# all that it imports: a broker's start takes 1.8 s of the processor then, not 0.7.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo venv test pytest pythons quick quick-list lint format types unit sim sim-group model mutants bench bench-large bench-spark spark spark-matrix reliable-matrix fault group-faults outbox-faults fuzz rows docs docs-check clean

help: ## list the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  settings: PYTHON=$(PYTHON) VENV=$(VENV) SECONDS=$(SECONDS) SEED=$(SEED) DEMO=$(DEMO) SPARK=$(SPARK) JOBS=$(JOBS)"

demo: $(DEMOED) ## flights through a broker that is killed on the way (DEMO="--all": options)
	@$(BIN)/ternmq demo $(DEMO)

venv: $(STAMP) ## make the virtual environment, again when pyproject.toml changed

$(STAMP): EXTRA := dev
$(DEMOED): EXTRA := demo,fast,spark
# Half a gigabyte, so only what needs it asks for it. With it comes a Java, for machines that have none.
$(SPARKED): EXTRA := spark
$(SPARKED): | $(STAMP)
$(STAMP) $(DEMOED) $(SPARKED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "TernMQ needs Python 3.11 or newer; say PYTHON=... (this is $$($(PYTHON) --version))"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[$(EXTRA)]"
	@touch $@

# A skip that tests/allowed_skips.toml does not explain fails the run: tests/skips_plugin.py.
# Which tests may run beside which: tests/parallel_plugin.py.
test: lint types docs-check $(if $(filter yes,$(SPARK)),$(SPARKED)) ## checks, then all tests on all cores (SPARK=no: without those that want Spark; JOBS=0: one after another; REPORT=file.xml: how long each took)
	$(BIN)/python -m pytest $(WORKERS) --rows-report=.pytest_rows.json $(if $(REPORT),--junitxml=$(REPORT))
	@$(BIN)/python -m tests.rows --summary

# Which tests: tests/quick_plugin.py. The simulator's 20 s are a seed of their own each time.
quick: lint types docs-check ## checks, quick tests and 20 s of simulated crashes: for each change, under ten minutes
	$(BIN)/python -m pytest --quick
	@# 3: no violation, but so short a run did not reach every path.
	$(BIN)/python -m tests.sim run --seconds 20 || [ $$? -eq 3 ]

# What `quick` leaves out by its folder is not measured; a test that fails is no measurement.
quick-list: venv ## measure which tests are not quick, on a quiet machine: writes tests/slow_tests.txt
	-$(BIN)/python -m pytest $(addprefix --ignore=tests/,spark fault demo examples) --junitxml=.pytest_quick.xml
	$(BIN)/python -m tests.quick_plugin .pytest_quick.xml

lint: venv ## ruff, formatting, import contracts
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/lint-imports --no-logo

format: venv ## let ruff mend what it can
	$(BIN)/ruff check --fix $(CHECKED)
	$(BIN)/ruff format $(CHECKED)

types: venv ## mypy --strict
	$(BIN)/mypy $(CHECKED)

spark: $(SPARKED) ## tests of the data pipeline only
	$(BIN)/python -m pytest tests/spark tests/unit/spark tests/unit/pipeline tests/integration/test_spark_reading.py

spark-matrix: $(SPARKED) ## the same with each release line of Spark, more kills, and a checkpoint that is carried over
	$(BIN)/python -m tests.spark.matrix

reliable-matrix: venv ## tests of ternmq.reliable with the oldest Django, SQLAlchemy and drivers (SETS="oldest older")
	$(BIN)/python -m tests.reliable_matrix $(SETS)

pytest: $(STAMP) $(if $(filter yes,$(SPARK)),$(SPARKED)) ## some tests: TESTS="tests/unit -k name"
	$(BIN)/python -m pytest $(TESTS)

pythons: venv ## all tests with each newer Python (PYTHONS="3.13 3.14"); each takes as long as `make test`
	$(BIN)/python -m tests.pythons $(PYTHONS)

unit: venv ## unit tests only
	$(BIN)/python -m pytest tests/unit

sim: venv ## simulate crashes for SECONDS (SEED=n repeats one)
	$(BIN)/python -m tests.sim run --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

sim-group: venv ## simulate a broker group for SECONDS (SEED=n repeats one)
	$(BIN)/python -m tests.sim.group run --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

model: venv ## explore the rules of replication, and each of them broken (half an hour, one process)
	$(BIN)/python -m tests.model explore
	$(BIN)/python -m tests.model mutants

mutants: venv ## plant known bugs; the simulator must find each
	$(BIN)/python -m tests.mutants

bench: venv ## measure the core, a broker process with its clients, and others beside it
	$(BIN)/python bench/core.py
	$(BIN)/python bench/broker.py
	$(BIN)/python bench/schedule.py
	$(BIN)/python bench/transactions.py
	$(BIN)/python bench/failures.py
	$(BIN)/python bench/broadcast.py
	$(BIN)/python bench/ids.py
	$(BIN)/python bench/peers.py

bench-large: venv ## measure the core with a large journal (gigabytes of disk), and a broker that is overloaded
	$(BIN)/python bench/core.py --large
	$(BIN)/python bench/overload.py
	@$(BIN)/python -c 'import deltalake, duckdb' 2>/dev/null && $(BIN)/python bench/archive.py \
	    || echo "the archive is left out: it wants pip install -e '.[spark]'"

bench-spark: $(SPARKED) ## measure topics as tables
	$(BIN)/python bench/spark.py
	$(BIN)/python bench/spark_jobs.py

fault: venv ## faults on real processes and disks, at more points than `make test`
	FAULT_POINTS=$${FAULT_POINTS:-25} $(BIN)/python -m pytest -m fault tests/fault

# Longer than `make test` has time for: all scenarios, CYCLES faults in a row; random ones for
# GROUP_SECONDS (an hour), the first round with SEED.
group-faults: venv ## faults on the processes of a broker group, the long forms (CYCLES=10; hours)
	GROUP_CYCLES=$(CYCLES) $(if $(SEED),GROUP_SEED=$(SEED)) $(BIN)/python -m pytest -s tests/fault/group

# All cases, and the long forms of OBX-1 and OBX-2 (half an hour).
outbox-faults: venv ## faults on applications with an outbox, the long forms (SEED=n: of the kills)
	OUTBOX_LONG=1 $(if $(SEED),OUTBOX_SEED=$(SEED)) $(BIN)/python -m pytest -s tests/fault/reliable tests/black_box/test_rows_sequences.py tests/black_box/test_rows_inbox.py

fuzz: venv ## bend bytes for every decoder, SECONDS each (SEED=n repeats; TARGET=frames|records|expressions)
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(if $(TARGET),--target $(TARGET))

rows: venv ## run the tests of mission rows, print row -> tests -> passed
	$(BIN)/python -m tests.rows --run

docs: venv ## write the pages that are made of the code anew
	$(BIN)/python -m tests.unit.settings.test_reference
	$(BIN)/python -m tests.unit.client.test_defaults
	$(BIN)/python -m tests.unit.wire.control_tables
	$(BIN)/python bench/page.py
	$(BIN)/python -m tests.pages
	$(BIN)/python -m tests.cli.test_reference

docs-check: venv ## every link in the documents leads somewhere
	$(BIN)/python -m tests.docs_check
	$(BIN)/python bench/page.py --check

clean: ## remove what make made, caches included
	rm -rf $(VENV) .venv-spark-* .venv-python-* .venv-reliable-* .pytest_python_*.xml .pytest_reliable_*.xml build dist .pytest_rows.json .pytest_quick.xml .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests $(wildcard bench) -name __pycache__ -type d -prune -exec rm -rf {} +
