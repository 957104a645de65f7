"""Imports point down: read from the source of every module of the package, and tried in a fresh interpreter."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import kfoldfuse

PACKAGE = Path(kfoldfuse.__file__).parent

# The order of the layers, lowest first; a layer imports itself, its neighbours and what stands below.
LAYERS = [{"splitting", "combining", "exceptions"}, {"fusion"}, {"training"}, {"estimators"}]
# Who never imports what.
FORBIDDEN = {
    "splitting": {"keras", "tensorflow"},
    "combining": {"keras", "tensorflow"},
    "exceptions": {"keras", "tensorflow", "sklearn"},
    "fusion": {"sklearn"},
    "training": {"sklearn"},
}
# Files, by the start of their path in the package, that alone may import a module. New names need a reason.
ALLOWED = {
    "tensorflow": ("training/engine", "testing/_gradients.py"),
    "keras.src": ("fusion/_keras_private.py", "training/_keras_private.py"),
}


def imported_names(source, path):
    """Yield the dotted name of everything the source imports, at the top or inside a function."""
    package = ("kfoldfuse", *Path(path).parent.parts)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = [*package[: len(package) + 1 - node.level]] if node.level else []
            parts += [node.module] if node.module else []
            yield from (".".join([*parts, alias.name]) for alias in node.names)


def is_in(name, module):
    return name == module or name.startswith(f"{module}.")


def layer_of(name):
    """Return the layer of a dotted name or a file of the package; None for what stands outside the order."""
    parts = name.removesuffix(".py").replace("/", ".").split(".")
    for level, layer in enumerate(LAYERS):
        if parts[0] in layer:
            return level
    return None


def broken_rules(source, path):
    """List what the source, at this path within the package, imports against the rules."""
    broken = []
    top = Path(path).parts[0].removesuffix(".py")
    for name in imported_names(source, path):
        broken += [
            f"{path} imports {name}: {top} never imports {module}"
            for module in sorted(FORBIDDEN.get(top, ()))
            if is_in(name, module)
        ]
        broken += [
            f"{path} imports {name}: only {', '.join(files)} may"
            for module, files in ALLOWED.items()
            if is_in(name, module) and not path.startswith(files)
        ]
        is_private = any(part.startswith("_") and not part.endswith("__") for part in name.split("."))
        if is_in(name, "sklearn") and is_private:
            broken.append(f"{path} imports {name}: it is private to scikit-learn")
        if is_in(name, "kfoldfuse"):
            # `from kfoldfuse import fuse` is an import of the module that the lazy name comes from.
            own = name.removeprefix("kfoldfuse").lstrip(".")
            own = kfoldfuse._MODULE_OF.get(own, f"kfoldfuse.{own}").removeprefix("kfoldfuse.")
            here, there = layer_of(path), layer_of(own)
            if here is not None and there is not None and there > here:
                broken.append(f"{path} imports {name}: imports point down")
    return broken


def test_imports_of_the_package_point_down():
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > 10
    assert [
        rule for file in files for rule in broken_rules(file.read_text("utf-8"), file.relative_to(PACKAGE).as_posix())
    ] == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("splitting/folds.py", "import keras"),
        ("splitting/folds.py", "def f():\n    from keras.utils import to_categorical"),
        ("combining/mean.py", "import tensorflow as tf"),
        ("fusion/build.py", "from sklearn.base import clone"),
        ("training/engine.py", "import numpy, sklearn"),
        ("estimators/base.py", "from sklearn.utils._tags import Tags"),
        ("estimators/base.py", "import sklearn._loss"),
        ("estimators/base.py", "from sklearn.utils.validation import _check_feature_names"),
        ("estimators/base.py", "import tensorflow"),
        ("training/loop.py", "from tensorflow import function"),
        ("testing/layer_rule.py", "import tensorflow as tf"),
        ("fusion/build.py", "from keras.src import tree"),
        ("fusion/build.py", "from keras import src"),
        ("fusion/build.py", "from kfoldfuse.training import plan"),
        ("fusion/layers/dense.py", "from ...training import plan"),
        ("fusion/layers/dense.py", "from kfoldfuse import FusedKFoldClassifier"),
        ("splitting/folds.py", "from kfoldfuse import fuse"),
        ("exceptions.py", "from . import fusion"),
        ("training/__init__.py", "import kfoldfuse.estimators"),
    ],
)
def test_a_broken_rule_is_found(path, source):
    assert broken_rules(source, path) != []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("splitting/folds.py", "from sklearn.model_selection import check_cv\nfrom kfoldfuse.combining import mean"),
        ("training/engine.py", "import tensorflow as tf\nfrom kfoldfuse.fusion import fuse"),
        ("training/engine/step.py", "import tensorflow as tf"),
        ("training/_keras_private.py", "from keras.src import backend"),
        ("fusion/layers/dense.py", "from ..registry import register_layer_rule\nfrom . import conv\nimport keras"),
        ("estimators/base.py", "from sklearn import __version__\nfrom kfoldfuse import fuse, training, splitting"),
    ],
)
def test_imports_that_point_down_are_accepted(path, source):
    assert broken_rules(source, path) == []


@pytest.mark.parametrize("module", ["kfoldfuse", "kfoldfuse.exceptions", "kfoldfuse.splitting", "kfoldfuse.combining"])
def test_importing_loads_neither_keras_nor_tensorflow(module):
    code = f"import sys, {module}; print(sorted({{'keras', 'tensorflow'}} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_public_names_are_listed_before_they_are_loaded():
    code = "import sys, kfoldfuse; print(set(kfoldfuse.__all__) <= set(dir(kfoldfuse)), 'keras' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["True", "False"]


def test_every_public_name_comes_from_where_it_is_said_to():
    for name in kfoldfuse.__all__:
        value = getattr(kfoldfuse, name)
        assert value.__name__ == name
        assert is_in(value.__module__, kfoldfuse._MODULE_OF[name])


def test_unknown_name_is_refused_as_by_any_module():
    with pytest.raises(AttributeError) as caught:
        kfoldfuse.fuse_all  # noqa: B018 -- the access is what is tested
    assert str(caught.value) == "module 'kfoldfuse' has no attribute 'fuse_all'"
