VENV ?= .venv
PY := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed

.PHONY: install demo test slow faults mutations check format learn parity peers micro scale regress docs notebooks dist clean

install: $(INSTALLED)

# torch first and alone: asked for together with others, pip may choose a build with gigabytes of CUDA.
$(INSTALLED): requirements.lock pyproject.toml
	python3 -m venv $(VENV)
	$(PY) -m pip install --quiet torch==2.13.0
	$(PY) -m pip install --quiet --requirement requirements.lock
	$(PY) -m pip install --quiet --no-deps --editable .
	touch $@

demo: install  ## PPO on CartPole in all six backends, each run in a process of its own
	rm -f runs/smoke.sqlite*
	$(PY) -m benchback.cli run smoke
	$(PY) -m benchback.cli report runs/smoke.sqlite --out runs/smoke-report

test: install  ## the whole fast suite
	$(PY) -m pytest -n 3 --dist loadfile --no-loadscope-reorder

slow: install  ## the tests that the fast suite leaves out: long learning, every environment, every fault at full number
	$(PY) -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m slow

faults: install  ## every fault the instrument must survive, at full number
	$(PY) -m pytest -m slow tests/test_store.py tests/test_wire.py tests/test_process.py tests/test_campaign.py tests/test_killed.py tests/test_cluster.py tests/test_cluster_head.py tests/test_training_nodes.py

mutations: install  ## bugs made on purpose, each of which a test must notice
	$(PY) -m pytest tests/test_mutations.py
	$(PY) tests/seeded_bugs.py

check: install  ## format, lint, types
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/pyright

format: install
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

learn: install  ## the long learning runs; writes the table of docs/learning.md
	$(PY) benchmarks/learn.py

peers: install  ## the same work in rejax, stable-baselines3, sbx and baselines
	$(PY) -m benchback.cli peers

micro: install  ## what single operations cost in each backend
	$(PY) -m benchback.cli micro

scale: install  ## knees and exponents over environments, width, depth, threads, replay, agents
	$(PY) -m benchback.cli scale

regress: install  ## whether the working tree is slower than the last commit: six backends, at most 6 minutes
	$(PY) -m benchback.cli regress

parity: install
	$(PY) -m benchback.cli parity

docs: install  ## the site, in site/: open site/index.html; no network is needed to build or to read it
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

notebooks: install  ## run the walkthroughs of examples/notebooks and keep their outputs beside them
	$(PY) examples/notebooks/render.py

dist: install  ## source distribution and wheel, in dist/, built with the locked tools
	rm -rf dist
	$(PY) -m build --no-isolation

clean:
	rm -rf $(VENV) runs build dist site .pytest_cache .ruff_cache
