import numpy as np
import pytest


@pytest.fixture
def random_models():
    """Models from one function, each with float weights of its own."""

    def build_all(build, n_members, seed=0):
        generator = np.random.default_rng(seed)
        models = [build() for _ in range(n_members)]
        for model in models:
            for variable in model.variables:
                if str(variable.dtype).startswith("float"):
                    variable.assign(variable.numpy() + generator.uniform(-0.5, 0.5, size=variable.shape))
        return models

    return build_all
