"""What was released and what it costs: the privacy accountant, usable alone (NumPy and SciPy only).

One-liners (`epsilon`, `delta`, `noise_multiplier`, `steps`, …) answer single questions; `Account` keeps a
running total; `RenyiFilter` and `RenyiOdometer` are for parameters chosen from earlier outputs. Accountants
beyond the log moments are imported when they are first asked for by name (`as_accountant`).
"""

from dpexp.accounting.accountant import AbstractAccountant, AnyAccountant, UnsupportedEventError
from dpexp.accounting.accountants import LogMoments, MomentsAccountant, RenyiAccountant
from dpexp.accounting.adaptivity import ADAPTIVITY, adaptivity_table
from dpexp.accounting.api import (
    delta,
    epsilon,
    epsilons,
    lot_size,
    noise_multiplier,
    noise_scale,
    sampling_probability,
    steps,
)
from dpexp.accounting.bounds import Kind, PrivacyBound, Quantity
from dpexp.accounting.budget import (
    Account,
    Budget,
    Phase,
    delta_warning,
    lots_within,
    require_certified,
    total,
)
from dpexp.accounting.events import (
    NOTHING,
    BallsAndBins,
    Composed,
    Event,
    FixedSizeSampled,
    Gaussian,
    Partitioned,
    PoissonSampled,
    Relation,
    Release,
    Repeated,
    joint,
)
from dpexp.accounting.filters import (
    SIXTEEN_ORDERS,
    BudgetExceededError,
    RenyiFilter,
    RenyiOdometer,
    best_filter_order,
)
from dpexp.accounting.fraction_query import (
    gradient_multiplier_beside_fraction_query,
    with_fraction_query,
)
from dpexp.accounting.gaussian_filter import GaussianFilter
from dpexp.accounting.registry import accountants_by_name, as_accountant
from dpexp.accounting.statement import Statement, without_amplification
from dpexp.accounting.terms import FIXED_BEFOREHAND, BudgetTerms
from dpexp.accounting.trajectory import epsilons_after, trajectory

__all__ = [
    "ADAPTIVITY",
    "FIXED_BEFOREHAND",
    "NOTHING",
    "SIXTEEN_ORDERS",
    "AbstractAccountant",
    "Account",
    "AnyAccountant",
    "BallsAndBins",
    "Budget",
    "BudgetExceededError",
    "BudgetTerms",
    "Composed",
    "Event",
    "FixedSizeSampled",
    "Gaussian",
    "GaussianFilter",
    "Kind",
    "LogMoments",
    "MomentsAccountant",
    "Partitioned",
    "Phase",
    "PoissonSampled",
    "PrivacyBound",
    "Quantity",
    "Relation",
    "Release",
    "RenyiAccountant",
    "RenyiFilter",
    "RenyiOdometer",
    "Repeated",
    "Statement",
    "UnsupportedEventError",
    "accountants_by_name",
    "adaptivity_table",
    "as_accountant",
    "best_filter_order",
    "delta",
    "delta_warning",
    "epsilon",
    "epsilons",
    "epsilons_after",
    "gradient_multiplier_beside_fraction_query",
    "joint",
    "lot_size",
    "lots_within",
    "noise_multiplier",
    "noise_scale",
    "require_certified",
    "sampling_probability",
    "steps",
    "total",
    "trajectory",
    "with_fraction_query",
    "without_amplification",
]
