"""A small ledger on disk for tests."""

from dpexp.ledger import Journal, Ledger, Terms
from tests.plans import private_plan

RUN = "0123456789abcdef0123456789abcdef"


def plan(**changes):
    return private_plan(**({"steps": 40, "epsilon": None} | changes))


def terms(of_plan):
    return Terms.of(of_plan, {})


def create(path, of_plan):
    releases = len(of_plan.guarantee.releases)
    return Journal.create(path, run_id=RUN, terms=terms(of_plan).hash, releases=releases)


def reopen(path, of_plan, known=None):
    return Journal.open(path, run_id=RUN, terms=terms(of_plan).hash, known=known or {})


def spend(path, of_plan, lots):
    """A process that reserves so many lots and dies; returns its ledger."""
    ledger = Ledger(of_plan)
    with create(path, of_plan) as journal:
        ledger.keep(journal)
        for release in of_plan.guarantee.releases:
            ledger.charge(release)
        for t in range(lots):
            ledger.reserve(of_plan.step(t))
    return ledger


def resumed(path, of_plan, *, steps=0, fitted=True):
    with reopen(path, of_plan) as journal:
        return Ledger.resumed(of_plan, journal, steps=steps, fitted=fitted)
