"""One-liners: one number in, one `PrivacyBound` out, the same keywords everywhere.

    >>> round(epsilon(noise_multiplier=4, sampling_probability=0.01, steps=10_000, delta=1e-5), 4)
    1.2586

`accountant` is a name of `registry.accountants_by_name` or an accountant; `sampling` a name of
`schemes.SAMPLING`; `relation` a value of `Relation`. Give `delta` or `log_delta`, down to 10⁻³⁰⁰.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexp import _validate
from dpexp.accounting import calibration
from dpexp.accounting.accountant import AnyAccountant
from dpexp.accounting.bounds import PrivacyBound, Quantity
from dpexp.accounting.events import Gaussian, joint
from dpexp.accounting.moments import Array
from dpexp.accounting.noisy_steps import noisy_steps

__all__ = [
    "delta",
    "epsilon",
    "epsilons",
    "lot_size",
    "noise_multiplier",
    "noise_scale",
    "sampling_probability",
    "steps",
]

_SMALLEST_DELTA = 1e-300
_DELTA_HINT = "Give delta or log_delta, not both; δ goes down to 1e-300."
_MOST_STEPS = 10**12


def epsilon(
    *,
    noise_multiplier: float,
    steps: int,
    sampling_probability: float | None = None,
    delta: float | None = None,
    log_delta: float | None = None,
    accountant: str | AnyAccountant = "moments",
    sampling: str = "poisson",
    relation: str = "add_or_remove_one",
) -> PrivacyBound:
    """ε of T noisy steps at δ.

    Args:
        noise_multiplier: σ >= 0, noise std ÷ clip norm, in every relation; 0 gives ∞.
        steps: T >= 0; 0 gives 0.
        sampling_probability: q in [0, 1], lot size ÷ number of rows; may be left out with sampling=full.
        delta: δ in (0, 1); 0 gives ∞.
        log_delta: log δ instead.
        accountant: Its name, or an accountant.
        sampling: How lots are drawn.
        relation: The neighboring relation.

    Returns:
        ε; its `kind` says whether it is a proven upper bound.

    Raises:
        UserError: An argument is out of its range; the message names it.
        UnsupportedEventError: The accountant has no bound for this sampling under this relation.
    """
    run = noisy_steps(accountant, sampling, relation, _real(sampling_probability))
    return run.epsilon(_noise(noise_multiplier), _steps(steps), _delta(delta, log_delta))


def delta(
    *,
    noise_multiplier: float,
    steps: int,
    epsilon: float,
    sampling_probability: float | None = None,
    accountant: str | AnyAccountant = "moments",
    sampling: str = "poisson",
    relation: str = "add_or_remove_one",
) -> PrivacyBound:
    """δ of T noisy steps at ε >= 0. Arguments as in `epsilon`.

    Returns:
        δ <= 1; at least 10⁻³⁰⁰ unless nothing is released.
    """
    run = noisy_steps(accountant, sampling, relation, _real(sampling_probability))
    target = _validate.number("epsilon", _real(epsilon), at_least=0)
    return run.delta(_noise(noise_multiplier), _steps(steps), target)


def noise_multiplier(
    *,
    steps: int,
    epsilon: float,
    sampling_probability: float | None = None,
    delta: float | None = None,
    log_delta: float | None = None,
    accountant: str | AnyAccountant = "moments",
    sampling: str = "poisson",
    relation: str = "add_or_remove_one",
) -> PrivacyBound:
    """The smallest σ, within 1e-5 and rounded up, whose T steps cost at most (ε, δ).

    Arguments as in `epsilon`.
    """
    run = noisy_steps(accountant, sampling, relation, _real(sampling_probability))
    target, at = _target(epsilon), _target_delta(delta, log_delta)
    count = _steps(steps)
    sigma = calibration.smallest_noise_multiplier(
        lambda sigma: run.epsilon(sigma, count, at), target, key="epsilon"
    )
    return run.solved(sigma, Quantity.NOISE_MULTIPLIER, at)


def steps(
    *,
    noise_multiplier: float,
    epsilon: float,
    sampling_probability: float | None = None,
    delta: float | None = None,
    log_delta: float | None = None,
    accountant: str | AnyAccountant = "moments",
    sampling: str = "poisson",
    relation: str = "add_or_remove_one",
) -> PrivacyBound:
    """The largest T, up to 10¹², that costs at most (ε, δ); a whole number. Arguments as in `epsilon`."""
    run = noisy_steps(accountant, sampling, relation, _real(sampling_probability))
    sigma, target, at = _noise(noise_multiplier), _target(epsilon), _target_delta(delta, log_delta)
    count = calibration.most_steps(
        lambda count: float(run.epsilon(sigma, count, at)), target, at_most=_MOST_STEPS
    )
    return run.solved(count, Quantity.STEPS, at)


def sampling_probability(
    *,
    noise_multiplier: float,
    steps: int,
    epsilon: float,
    delta: float | None = None,
    log_delta: float | None = None,
    accountant: str | AnyAccountant = "moments",
    sampling: str = "poisson",
    relation: str = "add_or_remove_one",
) -> PrivacyBound:
    """The largest q, within 1e-5 and rounded down, that costs at most (ε, δ). Arguments as in `epsilon`.

    Raises:
        UserError: Also where the sampling is none that draws every lot afresh with a probability.
    """
    _validate.one_of("sampling", sampling, ("poisson", "without_replacement"))
    sigma, count, target = _noise(noise_multiplier), _steps(steps), _target(epsilon)
    at = _target_delta(delta, log_delta)
    run = noisy_steps(accountant, sampling, relation, 1.0)
    q = calibration.largest_sampling_probability(
        lambda q: run.at(q).epsilon(sigma, count, at), target, key="epsilon"
    )
    return run.solved(q, Quantity.SAMPLING_PROBABILITY, at)


def lot_size(
    *,
    num_examples: int,
    noise_multiplier: float,
    steps: int,
    epsilon: float,
    delta: float | None = None,
    log_delta: float | None = None,
    accountant: str | AnyAccountant = "moments",
    sampling: str = "poisson",
    relation: str = "add_or_remove_one",
) -> PrivacyBound:
    """The largest whole lot size L = qN that costs at most (ε, δ); N >= 1 is public. Others as in `epsilon`.

    Raises:
        UserError: Not even lots of one row are small enough.
    """
    _validate.one_of("sampling", sampling, ("poisson", "without_replacement"))
    rows = _validate.integer("num_examples", num_examples, at_least=1)
    sigma, count, target = _noise(noise_multiplier), _steps(steps), _target(epsilon)
    at = _target_delta(delta, log_delta)
    run = noisy_steps(accountant, sampling, relation, 1.0)
    size = calibration.most_steps(
        lambda size: float(run.at(size / rows).epsilon(sigma, count, at)), target, at_most=rows
    )
    if size == 0:
        floor = calibration.in_words(run.at(1 / rows).epsilon(sigma, count, at))
        raise _validate.refuse(
            "epsilon", target, f"a number of at least {floor}, the ε of lots of one row", "Add noise."
        )
    return run.solved(size, Quantity.LOT_SIZE, at)


def noise_scale(
    *,
    noise_multipliers: Sequence[float],
    steps: int,
    epsilon: float,
    sampling_probability: float | None = None,
    delta: float | None = None,
    log_delta: float | None = None,
    accountant: str | AnyAccountant = "moments",
    sampling: str = "poisson",
    relation: str = "add_or_remove_one",
) -> PrivacyBound:
    """The smallest c such that layers with noise c·σ_l on one common lot cost at most (ε, δ), rounded up.

    `noise_multipliers` holds σ_l > 0 of every layer, noise std ÷ its clip norm. Others as in `epsilon`.
    """
    layers = [_validate.number("noise_multipliers", _real(sigma), above=0) for sigma in noise_multipliers]
    if not layers:
        raise _validate.refuse("noise_multipliers", noise_multipliers, "at least one number > 0")
    together = joint([Gaussian(noise_multiplier=sigma) for sigma in layers]).noise_multiplier
    needed = noise_multiplier(
        steps=steps,
        epsilon=epsilon,
        sampling_probability=sampling_probability,
        delta=delta,
        log_delta=log_delta,
        accountant=accountant,
        sampling=sampling,
        relation=relation,
    )
    scale = float(needed) / together * (1 + 1e-14)  # above the rounding error of both
    return needed.described(quantity=Quantity.NOISE_SCALE).with_value(scale)


def epsilons(
    *,
    noise_multiplier: float,
    steps: int | Sequence[int],
    sampling_probability: float | None = None,
    delta: float | None = None,
    log_delta: float | None = None,
    accountant: str | AnyAccountant = "moments",
    sampling: str = "poisson",
    relation: str = "add_or_remove_one",
) -> Array:
    """ε after every step, or after some.

    `steps` is T, for ε after 1, 2, …, T steps (accountants moments and rdp), or up to 1000 numbers of steps
    in a sequence (any accountant). Others as in `epsilon`.

    Returns:
        ε, of the accountant's kind, shape (T,) or as many as there are numbers.
    """
    run = noisy_steps(accountant, sampling, relation, _real(sampling_probability))
    sigma, at = _noise(noise_multiplier), _target_delta(delta, log_delta)
    if isinstance(steps, Sequence | np.ndarray):
        return run.epsilons(sigma, [_steps(count) for count in steps], at)
    return run.trajectory(sigma, _steps(steps), at)


def _real(value: Any) -> Any:
    """A float32 as the decimal it was typed as: np.float32(0.01) means 0.01."""
    short = isinstance(value, np.floating) and value.dtype.itemsize < 8
    return float(str(value)) if short else value


def _noise(sigma: float) -> float:
    return _validate.number("noise_multiplier", _real(sigma), at_least=0)


def _steps(count: int) -> int:
    hint = "Longer runs are not priced here: the counts would no longer be exact in floating point."
    whole = _validate.integer("steps", count, at_least=0)
    return int(_validate.number("steps", whole, at_most=_MOST_STEPS, hint=hint))


def _target(epsilon: float) -> float:
    return _validate.number("epsilon", _real(epsilon), above=0)


def _delta(delta: float | None, log_delta: float | None) -> float:
    """δ in {0} ∪ [1e-300, 1)."""
    return 0.0 if log_delta is None and _real(delta) == 0 else _target_delta(delta, log_delta)


def _target_delta(delta: float | None, log_delta: float | None) -> float:
    if (delta is None) == (log_delta is None):
        raise _validate.refuse("delta", delta, "a number in (0, 1), or log_delta", _DELTA_HINT)
    if log_delta is None:
        return _validate.number("delta", _real(delta), at_least=_SMALLEST_DELTA, below=1, hint=_DELTA_HINT)
    smallest = math.log(_SMALLEST_DELTA)
    log = _validate.number("log_delta", _real(log_delta), at_least=smallest, below=0, hint=_DELTA_HINT)
    return min(math.exp(log) * (1 - 1e-13), math.nextafter(1, 0))  # exp rounded down
