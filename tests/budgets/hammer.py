"""One process that spends from a budget: `python -m tests.budgets.hammer STORE TRACE SECONDS`.

It keeps a ledger of its own, apart from dpexp's: a line on disk before each reservation, and one after.
"""

import os
import random
import sys
import time

from dpexp.budgets.store import BudgetRefusedError
from tests.budgets.stores import EVENTS, priced, store_at


def main(place, trace, seconds):
    store = store_at(place)
    run = store.add_run("people", label=f"process {os.getpid()}")
    random.seed(os.getpid())
    held = [0] * len(EVENTS)
    with open(trace, "w", encoding="utf-8") as file:

        def note(*words):
            print(*words, file=file, flush=True)

        note("run", run)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            which, lots = random.randrange(len(EVENTS)), random.randint(1, 9)
            try:
                note("asked", which, lots)
                store.reserve("people", run, "lots", [priced(EVENTS[which], lots)])
                note("reserved", which, lots)
                held[which] += lots
            except BudgetRefusedError:
                note("refused", which, lots)
                if held[which]:
                    back = random.randint(1, held[which])
                    note("returning", which, back)
                    store.give_back("people", run, "undrawn", {repr(EVENTS[which]): back})
                    note("returned", which, back)
                    held[which] -= back


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
