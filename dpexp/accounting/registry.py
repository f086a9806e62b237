"""The accountants by name, imported when they are asked for."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType

from dpexp import _validate
from dpexp.accounting.accountant import AbstractAccountant, AnyAccountant

__all__ = ["accountants_by_name", "as_accountant"]

accountants_by_name: Mapping[str, str] = MappingProxyType(
    {
        "moments": "dpexp.accounting.accountants.MomentsAccountant",
        "rdp": "dpexp.accounting.accountants.RenyiAccountant",
        "pld": "dpexp.accounting.pld.PLDAccountant",
        "exact": "dpexp.accounting.contour.ExactAccountant",
        "gdp": "dpexp.accounting.gdp.GDPAccountant",
        "strong_composition": "dpexp.accounting.composition.StrongCompositionAccountant",
    }
)
"""Name in config and one-liners to the import path of the class; every class works without arguments."""


def as_accountant(accountant: str | AnyAccountant) -> AnyAccountant:
    """The accountant of that name, or the one given.

    Raises:
        UserError: There is none of that name; the closest one is suggested.
    """
    if isinstance(accountant, AbstractAccountant):
        return accountant
    return _named(_validate.one_of("accountant", accountant, accountants_by_name))


@cache
def _named(name: str) -> AnyAccountant:
    module, _, cls = accountants_by_name[name].rpartition(".")
    accountant: AnyAccountant = getattr(import_module(module), cls)()
    return accountant
