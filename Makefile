# `make demo` and `make test` need a python3 >= 3.10 and nothing else; PYTHON=... picks another interpreter.
# PYTEST_ARGS goes to pytest as it is: make test PYTEST_ARGS="-n 4 -k splitting"
PYTHON ?= python3
PYTEST_ARGS ?=
VENV := .venv
STAMP := $(VENV)/.installed

# TensorFlow's start-up notes, not its warnings, are hidden in our own commands; the library never touches this.
export TF_CPP_MIN_LOG_LEVEL ?= 2

.PHONY: demo test test-slow lint

demo: $(STAMP)
	$(VENV)/bin/python examples/quickstart.py

test: $(STAMP)
	$(VENV)/bin/python -m pytest -m "not slow" $(PYTEST_ARGS)

test-slow: $(STAMP)
	$(VENV)/bin/python -m pytest -m slow $(PYTEST_ARGS)

lint: $(STAMP)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

$(STAMP): setup.cfg pyproject.toml
	@command -v "$(PYTHON)" >/dev/null || { \
		echo "A Python 3.10 or newer is needed. There is no '$(PYTHON)' here. Install one, or name yours: make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
		echo "A Python 3.10 or newer is needed. '$(PYTHON)' is $$("$(PYTHON)" --version 2>&1). Name another: make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' || { \
		echo "Python's venv and ensurepip are needed. '$(PYTHON)' lacks them. Install them (on Debian and Ubuntu: python3-venv)." >&2; exit 1; }
	@echo "Creating $(VENV) and installing kfoldfuse with TensorFlow in it (once; a few minutes) ..."
	"$(PYTHON)" -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --editable '.[test]'
	@touch $@
