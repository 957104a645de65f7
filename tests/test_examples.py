"""The examples and the benchmarks run from the command line and print what they promise; times are not tested."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent


def run(script, *arguments):
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, ROOT / script, *arguments],
        env={**os.environ, "PYTHONPATH": path, "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def cells(output, title):
    line = next(line for line in output.splitlines() if line.startswith(title))
    return [float(cell) for cell in line.removeprefix(title).split()]


@pytest.mark.slow
def test_the_quickstart_trains_both_ways_and_agrees_with_plain_keras():
    output = run("examples/quickstart.py", "--quick")
    for fold in range(10):
        assert all(score <= 1 for score in cells(output, f"fold {fold}, on the rows it left out"))
    assert len(cells(output, "out-of-fold, every row")) == 3
    assert len(cells(output, "all folds together, on new rows")) == 3
    assert max(cells(output, "in float32, the fit above")) < 1e-5  # one epoch; what we see is 6e-8
    assert max(cells(output, "in float64, up to 5 epochs")) < 1e-12  # what we see is 1e-16


@pytest.mark.slow
@pytest.mark.parametrize("script", ["kfold_mlp", "cnn"])
def test_a_benchmark_compares_all_ways(script):
    output = run(f"benchmarks/{script}.py", "--quick")
    lines = ["fused, first fit", "fused, second fit", "tight one-member loop, one", "tight one-member loop, traced"]
    for line in [*lines, "Keras loop"]:
        assert re.search(rf"^{line}.* \d+\.\d\d( +\d+\.\d)?$", output, re.MULTILINE), line


@pytest.mark.slow
def test_the_benchmark_of_widths_has_a_row_for_each():
    output = run("benchmarks/where_fusing_pays.py", "--quick")
    assert re.findall(r"^ +(4-4|8-8)(?: +\d+\.\d+){4}$", output, re.MULTILINE) == ["4-4", "8-8"]


def test_every_example_and_benchmark_has_a_test():
    scripts = [path.stem for folder in ("examples", "benchmarks") for path in (ROOT / folder).glob("*.py")]
    assert sorted(scripts) == ["baselines", "cnn", "kfold_mlp", "quickstart", "where_fusing_pays"]
