# Every target makes the virtual environment it needs: a clean clone, Python 3.11+ and make are enough.
# `make PYTHON=python3.13 test` takes another Python, `make test ARGS="-k fence"` hands arguments on.

PYTHON ?= python3
ARGS ?=

VENV := .venv
RUN := $(CURDIR)/$(VENV)/bin
# What the checks look at: the folders that exist (git keeps no empty ones).
SOURCES := $(wildcard txnlog catalog spark_ext pyspark_txnlog.py tests tools examples benchmarks notebooks)
# Hundreds of processes are started, and each would compile our code anew where nothing compiled may be kept.
unexport PYTHONDONTWRITEBYTECODE
# For what starts Spark: a Java 17+ (a bundled one where the machine has none), this Python, and the loopback address;
# and a home of Spark in which Python does not compile PySpark anew at each start.
# Its drivers, of which the tests start many, find their classes in an archive (made once, in the environment).
SPARK_ENV = JAVA_HOME="$$($(RUN)/python tools/java_home.py)" SPARK_HOME="$$($(RUN)/python tools/spark_home.py)" \
	PYSPARK_PYTHON="$(RUN)/python" PYSPARK_DRIVER_PYTHON="$(RUN)/python" SPARK_LOCAL_IP=127.0.0.1 && \
	export JAVA_HOME SPARK_HOME PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON SPARK_LOCAL_IP && \
	SPARK_SUBMIT_OPTS="$$($(RUN)/python -m tools.java_archive)" && export SPARK_SUBMIT_OPTS &&
# Older versions of PySpark leave sockets open, and the pages of the documentation are written for the newest one.
ON_OLDER_SPARK = -m pytest -n 2 --dist loadfile -W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning \
	tests/spark --ignore tests/spark/session/test_docs.py

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help install check format test test-all test-fast test-delta test-kafka test-s3a test-rights monitoring test-spark40 test-spark41 mutants sim crash crash-operations crash-spark crash-delta conformance engines-read damage healthy demo notebooks docs bench bench-all bench-peers release matrix lock lock-peers clean

help: ## Show this list.
	@awk 'BEGIN { FS = ":.*## " } /^[a-z0-9-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile

install: ## Make .venv from requirements/dev.lock (done already: costs nothing).
	@$(PYTHON) tools/install.py $(VENV)

check: install ## Formatting, lint, types and the layers.
	@$(RUN)/ruff format --check --quiet --diff $(SOURCES)
	@$(RUN)/ruff check --quiet --output-format concise $(SOURCES)
	@$(RUN)/mypy
	@$(RUN)/lint-imports --no-logo

format: install ## Format the code and sort the imports.
	@$(RUN)/ruff check --quiet --select I --fix $(SOURCES)
	@$(RUN)/ruff format --quiet $(SOURCES)

test: check ## The checks, then the tests that each push runs (ARGS="-n 0 -k fence": some, in one process); needs Maven, once.
	@$(SPARK_ENV) $(RUN)/python -m pytest -n 4 --dist loadfile --ignore tests/delta --ignore tests/kafka $(ARGS)

test-all: export TXNLOG_TESTS = long
test-all: test ## The same, with all that a push leaves out, and three times as much where a test could try for ever.

test-delta: install ## Foreign Delta tables, in a session that has Delta: minutes, fetches its jars with Maven once.
	@$(SPARK_ENV) $(RUN)/python -m pytest -n 0 tests/delta $(ARGS)

test-kafka: install ## Ingestion from a broker of Kafka 4.1 on loopback: minutes, fetches its jars with Maven once.
	@$(SPARK_ENV) $(RUN)/python -m pytest -n 0 tests/kafka $(ARGS)

test-fast: install ## Unit tests only: seconds, no Spark.
	@$(RUN)/python -m pytest tests/unit $(ARGS)

test-s3a: install ## Native scans through s3a:// on an S3 server on loopback: fetches 690 MB with Maven once.
	@$(SPARK_ENV) $(RUN)/python -m pytest -n 0 -s tests/places/over_s3a.py $(ARGS)

test-rights: install ## The policies of docs/operations/access.md on a MinIO: built from its Go module once, minutes.
	@$(RUN)/python -m pytest -n 0 -s tests/rights/over_minio.py $(ARGS)

monitoring: install ## Alerts, their tests and the metrics in Prometheus' own promtool: built from its Go module once, minutes.
	@$(RUN)/python -m pytest -n 0 -s tests/monitoring/over_promtool.py $(ARGS)

test-spark40: install ## The Spark tests on PySpark 4.0, in an environment of its own: what it lacks is an error that says so.
	@$(SPARK_ENV) $(RUN)/python -m tools.older_spark 4.0 $(ON_OLDER_SPARK) $(ARGS)

test-spark41: install ## The same on PySpark 4.1.
	@$(SPARK_ENV) $(RUN)/python -m tools.older_spark 4.1 $(ON_OLDER_SPARK) $(ARGS)

mutants: install ## Plant known bugs one by one: the tests must catch every one.
	@$(SPARK_ENV) $(RUN)/python tests/mutants/run.py $(ARGS)

sim: install ## Simulate clients over a store with faults: all kept seeds, every planted bug, 6,000 fresh schedules.
	@$(RUN)/python -m tests.sim.run $(ARGS)

crash: install ## Kill 2,000 processes over local files and 300 over S3: minutes (ARGS="--local 200 --s3 30").
	@$(RUN)/python -m tests.crash.core.run $(ARGS)

crash-spark: install ## Kill 100 drivers and 50 executors of Spark amid streams: half an hour (ARGS="--drivers 9 --executors 3").
	@$(SPARK_ENV) $(RUN)/python -m tests.crash.spark.run $(ARGS)

crash-delta: install ## Kill publishers, writers, optimize and vacuum for ten minutes: each published version is the log's (ARGS="--seconds 60").
	@$(RUN)/python -m tests.crash.delta.run $(ARGS)

crash-operations: install ## Kill maintenance, publication, backup, restore and repair 200 times each: ten minutes (ARGS="--kills 20 erase").
	@$(RUN)/python -m tests.crash.operations.run $(ARGS)

conformance: install ## The kit for readers of the format, asked of the second reader (examples/second_reader).
	@$(RUN)/python -m txnlog.testing.conformance run $(ARGS) -- $(RUN)/python -m examples.second_reader

engines-read: install ## 200 random histories of published topics, read by deltalake, Polars and DuckDB at every version.
	@TXNLOG_HISTORIES=200 $(RUN)/python -m pytest -n 0 tests/catalog/test_engines_read.py $(ARGS)

healthy: install ## Check what 1,000 simulated schedules leave, of every workload and at every level: no finding (ARGS="--count 50").
	@$(RUN)/python -m tests.damage.healthy $(ARGS)

damage: install ## Damage every kind of object of a namespace, and print what that stops (ARGS=--write keeps it in the page).
	@$(RUN)/python -m tests.damage.run $(ARGS)

demo: install ## A pipeline over several topics, start to end, on this machine.
	@$(SPARK_ENV) $(RUN)/python -m examples.demo $(ARGS)

notebooks: install ## Run all notebooks: they hold what they claim, and print what git has (ARGS=--write keeps it).
	@$(SPARK_ENV) $(RUN)/python -m tools.notebooks $(ARGS)

docs: install ## Build the site in build/docs/html: warnings are errors, and so are links that lead nowhere.
	@$(RUN)/python -m tools.docs --fresh $(ARGS)

bench: install ## Figures of the core in three minutes, printed only: it fails if a benchmark cannot run, whatever it measures.
	@$(RUN)/python -m benchmarks.run --quick $(ARGS)

bench-all: install ## Measure again what benchmarks/RESULTS.md claims (the jars of Delta and Kafka come with Maven, once).
	@$(SPARK_ENV) $(RUN)/python -m benchmarks.run $(ARGS)

bench-peers: install ## Kafka, Pulsar and DuckLake beside txnlog, in one run: a report in out/bench-peers; needs a JDK and Maven.
	@JAVA_HOME="$$($(RUN)/python tools/java_home.py)" $(RUN)/python -m tools.peers_environment -m benchmarks.peers run $(ARGS)

release: install ## Build sdist and wheel twice and compare them; SBOM and licences: all in build/release.
	@$(RUN)/python -m tools.release $(ARGS)

matrix: install ## Wheel and sdist with PySpark 4.0 to 4.2 and every Python from 3.11 on: half an hour (ARGS="--spark 4.2 --python 3.12").
	@$(RUN)/python -m tools.matrix $(ARGS)

lock: install ## Resolve requirements/dev.lock again (ARGS=--upgrade takes newer versions).
	@$(RUN)/uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" --quiet \
		--output-file requirements/dev.lock $(ARGS)

lock-peers: install ## Resolve requirements/peers.lock again.
	@$(RUN)/uv pip compile requirements/peers.in --no-deps --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock-peers" --quiet \
		--output-file requirements/peers.lock $(ARGS)

clean: ## Remove what the other targets made.
	rm -rf $(VENV) $(VENV)-spark* $(VENV)-peers build dist out spark-warehouse metastore_db *.egg-info .mypy_cache .ruff_cache .pytest_cache \
		.hypothesis .import_linter_cache
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
