"""Small budgets for tests."""

from dpexp.accounting import Gaussian, Relation
from dpexp.budgets.database import Database
from dpexp.budgets.store import BudgetStore
from dpexp.budgets.totals import Priced, Totals

TOTALS = Totals(epsilon=1, delta=1e-5, relation=Relation.ADD_OR_REMOVE_ONE, orders=(2, 16))
EVENTS = [Gaussian(noise_multiplier=sigma) for sigma in (20, 37.3, 80)]


def store_at(place, wait_s=30):
    return BudgetStore(database=Database(store=str(place), wait_s=wait_s))


def opened(place, totals=TOTALS, wait_s=30):
    """The store with an open budget `people` and one run in it."""
    store = store_at(place, wait_s)
    store.open("people", lambda found: totals if found is None else found.totals)
    return store, store.add_run("people", label="a run")


def priced(event, lots, totals=TOTALS):
    return Priced(event, lots, totals.price(event))


def spent(store):
    return store.read("people")[0].spent
