"""What tells the settings of a report apart, and their short names."""

from collections.abc import Mapping, Sequence
from typing import final

from dpexp.report.stored import StoredRun

__all__ = ["Settings", "setting_of"]

# How a run is computed, shown and kept: what it releases does not depend on it.
_BESIDE = (
    "task.",
    "tracking.",
    "checkpoint.",
    "trainer.accelerator",
    "trainer.devices",
    "trainer.val_check_interval",
    "data.root",
    "data.mirrors",
)
_BESIDE_WHOLLY = ("seed", "resume", "physical_batch_size", "memory_mb", "compile")
_SYMBOLS = {
    "privacy.noise_multiplier": "σ",
    "privacy.clip_norm": "C",
    "privacy.lot_size": "L",
    "privacy.steps": "T",
    "privacy.epochs": "epochs",
    "privacy.epsilon": "target ε",
    "privacy.delta": "δ",
    "optimizer.lr": "lr",
    "plan.steps": "T",
}
_LONGEST = 40  # characters of a value in a name


def setting_of(run: StoredRun) -> frozenset[tuple[str, str]]:
    """What is equal for runs that differ only in seed."""
    return frozenset(
        (key, value)
        for key, value in run.params.items()
        if key not in _BESIDE_WHOLLY and not key.startswith(_BESIDE)
    )


@final
class Settings:
    """Names settings by the params in which they differ.

    Args:
        runs: All runs of the report.
    """

    def __init__(self, runs: Sequence[StoredRun]) -> None:
        self.keys = _telling_keys([dict(setting_of(run)) for run in runs])

    def values(self, run: StoredRun) -> dict[str, str]:
        """The params that tell the run's setting apart, under their symbols."""
        return {_symbol(key, self.keys): _short(key, run.params.get(key, "unset")) for key in self.keys}

    def name(self, run: StoredRun) -> str:
        """A short name of the run's setting, such as `σ = 4, L = 600`."""
        values = self.values(run)
        return ", ".join(f"{symbol} = {value}" for symbol, value in values.items() if value != "None")


def _telling_keys(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """The params that vary; of those with equal values the first, and `plan.` ones where no other does."""
    columns: dict[tuple[str | None, ...], str] = {}
    for key in sorted({key for setting in settings for key in setting}, key=_rank):
        column = tuple(setting.get(key) for setting in settings)
        if len(set(column)) > 1:
            columns.setdefault(column, key)
    asked = [key for key in columns.values() if not key.startswith("plan.")]
    return asked or list(columns.values())


def _rank(key: str) -> tuple[int, str]:
    order = list(_SYMBOLS)
    return (order.index(key) if key in order else len(order), key)


def _symbol(key: str, keys: Sequence[str]) -> str:
    """The symbol or last word of a key, or all of it where another key has that word too."""
    if key in _SYMBOLS:
        return _SYMBOLS[key]
    if key.endswith("._target_"):
        return key.removesuffix("._target_")
    last = key.rpartition(".")[2]
    return last if sum(other.rpartition(".")[2] == last for other in keys) == 1 else key


def _short(key: str, value: str) -> str:
    value = value.rpartition(".")[2] if key.endswith("_target_") else value
    return value if len(value) <= _LONGEST else f"{value[: _LONGEST - 1]}…"
