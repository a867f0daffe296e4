# The whole vocabulary of the project; `make help` explains it.
.DEFAULT_GOAL := help
.PHONY: help setup run test test-long mutants check format sim chaos bench demo lock clean

PY := .venv/bin/python
READY := .venv/.ready
RUNS := .venv/.runs
unexport PYTHONDONTWRITEBYTECODE  # a broker that is compiled anew at each start is not ready in time
LOCK := uv pip compile pyproject.toml --generate-hashes --no-emit-index-url --no-header --universal \
  --python-version 3.11 --quiet
PYTEST := $(PY) -m pytest -n auto --maxprocesses 4 --dist loadgroup -q

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

# Made again when what is to be installed changed; otherwise nothing is touched, so it works offline.
$(READY): requirements.lock pyproject.toml scripts/setup
	@scripts/setup requirements.lock
	@touch $(RUNS) $@

# A broker needs little of that: PySpark alone is 400 MB.
$(RUNS): requirements-run.lock pyproject.toml scripts/setup
	@scripts/setup requirements-run.lock
	@touch $@

setup: $(READY)  ## make .venv with everything in it

run: $(RUNS)  ## a broker on 127.0.0.1:9092 that keeps its data in ./data
	@printf '%s\n' 'Next, in another terminal:' \
	  '  .venv/bin/tidelog topic create greetings' \
	  '  echo "hello, tide" | .venv/bin/tidelog produce greetings' \
	  '  .venv/bin/tidelog consume greetings --from beginning --count 1' \
	  'Ctrl-C stops the broker.' ''
	@exec .venv/bin/tidelog serve --data ./data --listen 127.0.0.1:9092

test: $(READY)  ## the tests
	@$(PYTEST) -m "not long"

test-long: $(READY)  ## all tests, also those that take longer than CI allows
	@$(PYTEST)

mutants: $(READY)  ## what the tests of the modules that decide don't notice: small changes, one at a time
	@$(PY) -m tools.mutants

check: $(READY)  ## format, lint, types, layers
	@.venv/bin/ruff format --check .
	@.venv/bin/ruff check .
	@.venv/bin/basedpyright
	@.venv/bin/lint-imports --no-logo

format: $(READY)  ## let ruff format and mend what it can
	@.venv/bin/ruff format .
	@.venv/bin/ruff check --fix .

sim: $(READY)  ## on virtual time, with failing disks: 100 seeds of a broker, 200 of a quorum, 40 of replicated topics
	@$(PY) -m tidelog.sim --seeds 100 --jobs 2
	@$(PY) -m tidelog.sim --scenario quorum --seeds 200 --jobs 2
	@$(PY) -m tidelog.sim --scenario cluster --seeds 40 --jobs 2

MINUTES := 10
chaos: $(READY)  ## three nodes that are killed, frozen, cut off and left without room; MINUTES=10, SEED= to choose one
	@$(PY) -m tools.chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

bench: $(READY)  ## Tidelog beside a C floor and, where it can be had, Apache Kafka
	@$(PY) -m bench

demo: $(READY)  ## a short tour: topics, records, kill -9, the log in words; then a shop's orders through Spark
	@PATH="$(CURDIR)/.venv/bin:$$PATH" sh scripts/demo
	@sh scripts/demo-spark

lock:  ## write the lock files anew from pyproject.toml (needs uv)
	$(LOCK) --extra dev --output-file requirements.lock
	$(LOCK) --extra build --constraint requirements.lock --output-file requirements-run.lock

clean:  ## remove .venv and caches; ./data stays
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis .import_linter_cache
