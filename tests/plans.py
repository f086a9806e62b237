"""Plans for tests, by the names of the config."""

import math

from dpexp.accounting import Gaussian, MomentsAccountant, Release
from dpexp.budgets import FIXED
from dpexp.lots import PoissonSampling
from dpexp.privacy import DPSGD, NoPrivacy

PCA = Release("dp_pca", Gaussian(noise_multiplier=7, replace_one_factor=math.sqrt(2)))
ADAPTIVE = {"quantile": 0.5, "learning_rate": 0.2, "noise_std": None}
PER_LAYER = {"hidden": {"parameters": "hidden.*"}, "output": {"parameters": "output.*"}}


def settings(**changes):
    keys = {
        "noise_multiplier": 4,
        "clip_norm": 4,
        "lot_size": 600,
        "steps": None,
        "epochs": None,
        "epsilon": 2,
        "delta": 1e-5,
        "relation": "add_or_remove_one",
        "clipping": "flat",
        "noise": "default",
        "deterministic": False,
        "layers": None,
        "adaptive": None,
    }
    return DPSGD(**(keys | changes))


def private_plan(*, num_examples=60_000, accountant=None, releases=(), budget=FIXED, **changes):
    return settings(**changes).plan(
        num_examples=num_examples,
        sampling=PoissonSampling(),
        accountant=accountant or MomentsAccountant(),
        releases=releases,
        budget=budget,
    )


def plain_plan(*, num_examples=60_000, lot_size=600, steps=10, epochs=None):
    return NoPrivacy(lot_size=lot_size, steps=steps, epochs=epochs).plan(
        num_examples=num_examples,
        sampling=PoissonSampling(),
        accountant=MomentsAccountant(),
        releases=(),
    )
