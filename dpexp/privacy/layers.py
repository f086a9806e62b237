"""`privacy.layers`: named groups of parameters, each with its own C, σ and lot where it says so."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from dpexp import _validate
from dpexp.clip_rules import ClipRule
from dpexp.plan import COMMON_LOT, Group, LotSpec
from dpexp.schedules import AbstractSchedule, as_lot_size, as_schedule

__all__ = ["Layers"]

_ENTRY_KEYS = ("parameters", "clip_norm", "noise_multiplier", "lot_size", "lot")


@final
@dataclass(frozen=True, kw_only=True)
class Layers:
    """The groups and lots of a configuration.

    Attributes:
        entries: `privacy.layers`; None for one group of all parameters.
        clip_norm: C of each group without its own.
        noise_multiplier: σ of each group without its own.
        lot_size: L of the common lot.
        clipping: How gradients are bounded, in every group.
    """

    entries: Mapping[str, Mapping[str, Any]] | None
    clip_norm: Any
    noise_multiplier: Any
    lot_size: AbstractSchedule
    clipping: ClipRule

    def __post_init__(self) -> None:
        if self.entries is not None:
            _check_entries(self.entries)

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups, in the order of the entries."""
        if self.entries is None:
            return (self._group("all", {"parameters": "*"}, COMMON_LOT),)
        own = self._own_lots
        return tuple(
            self._group(name, entry, _lot_of(name, entry, own)) for name, entry in self.entries.items()
        )

    @property
    def lots(self) -> tuple[LotSpec, ...]:
        """The lots that some group uses; the common one first."""
        used = {group.lot for group in self.groups}
        common = LotSpec(name=COMMON_LOT, size=self.lot_size)
        return tuple(lot for lot in (common, *self._own_lots.values()) if lot.name in used)

    @property
    def _own_lots(self) -> dict[str, LotSpec]:
        return {
            name: LotSpec(name=name, size=as_lot_size(f"privacy.layers.{name}.lot_size", entry["lot_size"]))
            for name, entry in (self.entries or {}).items()
            if entry.get("lot_size") is not None
        }

    def _group(self, name: str, entry: Mapping[str, Any], lot: str) -> Group:
        patterns = entry["parameters"]
        return Group(
            name=name,
            patterns=(patterns,) if isinstance(patterns, str) else tuple(patterns),
            clip_norm=_inherit(name, entry, "clip_norm", self.clip_norm),
            noise_multiplier=_inherit(name, entry, "noise_multiplier", self.noise_multiplier),
            lot=lot,
            clipping=self.clipping,
        )


def _inherit(name: str, entry: Mapping[str, Any], key: str, common: Any) -> AbstractSchedule:
    if entry.get(key) is not None:
        return _own(name, key, entry[key])
    return as_schedule(f"privacy.{key}", common)


def _check_entries(layers: Any) -> None:
    if not isinstance(layers, Mapping) or not layers:
        raise _validate.refuse("privacy.layers", layers, "null, or entries NAME: {parameters: …}")
    for name, entry in layers.items():
        key = f"privacy.layers.{name}"
        if not (isinstance(name, str) and name.isidentifier()) or name == COMMON_LOT:
            raise _validate.refuse("privacy.layers", name, f"an identifier other than {COMMON_LOT!r} as name")
        if not isinstance(entry, Mapping) or not entry.get("parameters"):
            raise _validate.refuse(key, entry, "a mapping with `parameters`, one or more name patterns")
        for unknown in set(entry) - set(_ENTRY_KEYS):
            hint = _validate.did_you_mean(str(unknown), _ENTRY_KEYS)
            raise _validate.refuse(
                f"{key}.{unknown}", entry[unknown], f"one of {', '.join(_ENTRY_KEYS)}", hint
            )


def _own(name: str, key: str, value: Any) -> AbstractSchedule:
    return as_schedule(f"privacy.layers.{name}.{key}", value)


def _lot_of(name: str, entry: Mapping[str, Any], own: Mapping[str, LotSpec]) -> str:
    shared = entry.get("lot")
    key = f"privacy.layers.{name}.lot"
    if shared is None:
        return name if name in own else COMMON_LOT
    if name in own:
        raise _validate.refuse(key, shared, "either lot_size (its own lot) or lot (another entry's)")
    if shared not in own:
        hint = _validate.did_you_mean(str(shared), own)
        raise _validate.refuse(key, shared, f"an entry with a lot_size of its own ({', '.join(own)})", hint)
    return str(shared)
