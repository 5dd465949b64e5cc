VENV ?= .venv
PY := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed

.PHONY: install demo test check format learn parity peers clean

install: $(INSTALLED)

# torch first and alone: asked for together with others, pip may choose a build with gigabytes of CUDA.
$(INSTALLED): requirements.lock pyproject.toml
	python3 -m venv $(VENV)
	$(PY) -m pip install --quiet torch==2.13.0
	$(PY) -m pip install --quiet --requirement requirements.lock
	$(PY) -m pip install --quiet --no-deps --editable .
	touch $@

demo: install  ## PPO on CartPole in all six backends
	rm -rf runs/demo
	$(PY) -m benchback demo --out runs/demo

test: install  ## the whole fast suite
	$(PY) -m pytest -n 2 --dist loadfile

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
	$(PY) -m benchback peers

parity: install
	$(PY) -m benchback parity

clean:
	rm -rf $(VENV) runs .pytest_cache .ruff_cache
