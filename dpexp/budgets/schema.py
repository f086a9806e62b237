"""The tables of a budget store."""

from sqlalchemy import Column, ForeignKey, Index, Integer, MetaData, Table, Text

__all__ = ["BUDGETS", "DIGESTS", "METADATA", "RESERVATIONS", "RUNS", "STORE", "VERSION"]

VERSION = 1
METADATA = MetaData()

STORE = Table(
    "dpexp_store",
    METADATA,
    Column("version", Integer, nullable=False),
    Column("digest_key", Text, nullable=False),  # of the digests of data sets; hexadecimal
)

# Fractions and floats are texts without loss (a fraction, or `float.hex`).
BUDGETS = Table(
    "dpexp_budgets",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("epsilon", Text),  # null: no limit
    Column("delta", Text, nullable=False),
    Column("relation", Text, nullable=False),
    Column("orders", Text, nullable=False),
    Column("opened", Text, nullable=False),
    Column("spent", Text, nullable=False),  # Σ of the reservations below at each order
    Column("entries", Integer, nullable=False),
    Column("head", Text, nullable=False),  # hash of the last reservation, or of the terms
)

RUNS = Table(
    "dpexp_runs",
    METADATA,
    Column("run", Text, primary_key=True),
    Column("budget", Text, ForeignKey("dpexp_budgets.id"), nullable=False),
    Column("label", Text, nullable=False),
    Column("mlflow_run", Text),
    Column("started", Text, nullable=False),
    Column("host", Text, nullable=False),
)

RESERVATIONS = Table(
    "dpexp_reservations",
    METADATA,
    Column("budget", Text, ForeignKey("dpexp_budgets.id"), primary_key=True),
    Column("entry", Integer, primary_key=True),  # 1, 2, …
    Column("run", Text, ForeignKey("dpexp_runs.run"), nullable=False),
    Column("name", Text, nullable=False),
    Column("event", Text, nullable=False),
    Column("lots", Integer, nullable=False),  # negative: given back, provably not drawn
    Column("moments", Text, nullable=False),  # α(λ) of one lot at the budget's orders
    Column("at", Text, nullable=False),  # by this machine's clock; for people only
    Column("hash", Text, nullable=False),  # of the one before and of this row
    Index("dpexp_reservations_of_a_run", "budget", "run"),
)

DIGESTS = Table(
    "dpexp_digests",
    METADATA,
    Column("digest", Text, primary_key=True),
    Column("budget", Text, ForeignKey("dpexp_budgets.id"), nullable=False),
    Column("run", Text, ForeignKey("dpexp_runs.run"), nullable=False),
    Column("at", Text, nullable=False),
)
