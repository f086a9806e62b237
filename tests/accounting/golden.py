"""The golden rows (true values at 30 digits; tests/golden/accounting.csv), and what they describe."""

import csv
import math
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from dpexp.accounting.events import (
    BallsAndBins,
    Composed,
    FixedSizeSampled,
    Gaussian,
    Partitioned,
    PoissonSampled,
    Relation,
    Repeated,
)

PATH = Path(__file__).parents[1] / "golden" / "accounting.csv"
OF_OTHER_FILES = ("select_best", "filter_", "odometer_")  # test_selection.py, test_filters.py


@dataclass(frozen=True)
class Row:
    """One line of the file, as written there."""

    fields: dict[str, str]

    def __getattr__(self, name):
        return self.fields[name]

    def __str__(self):
        return f"{self.fields['id']}-{self.fields['accountant']}"

    @property
    def number(self):
        return float(self.fields["value"])

    @property
    def order(self):
        return float(self.fields["lambda"])

    @property
    def relation(self):
        names = {"replace-one": Relation.REPLACE_ONE, "zero-out": Relation.ZERO_OUT}
        found = [relation for name, relation in names.items() if name in self.setting]
        return found[0] if found else Relation.ADD_OR_REMOVE_ONE

    @property
    def groups(self):
        columns = (self.fields[name].split(";") for name in ("q", "sigma", "steps"))
        return [(float(Fraction(q)), float(s), int(t)) for q, s, t in zip(*columns, strict=True)]

    @property
    def event(self):
        return Composed(tuple(Repeated(self._lot(q, s), t) for q, s, t in self.groups))

    def _lot(self, q, sigma):
        if "fixed-size" in self.setting:
            rate = Fraction(self.fields["q"])
            gaussian = Gaussian(noise_multiplier=sigma)
            return FixedSizeSampled(gaussian=gaussian, lot_size=rate.numerator, population=rate.denominator)
        if self.setting.startswith("full batch"):  # the PCA query v vᵀ
            return Gaussian(noise_multiplier=sigma, replace_one_factor=math.sqrt(2))
        return PoissonSampled(gaussian=Gaussian(noise_multiplier=sigma), sampling_probability=q)

    @property
    def partition(self):
        ((_, sigma, epochs),) = self.groups
        return Partitioned(gaussian=Gaussian(noise_multiplier=sigma), epochs=epochs)

    @property
    def epoch_of_bins(self):
        ((q, sigma, _),) = self.groups
        return BallsAndBins(gaussian=Gaussian(noise_multiplier=sigma), lots=round(1 / q))


def rows(*accountants):
    """Rows of the accountants whose names begin so."""
    with PATH.open(encoding="utf-8") as file:
        everything = [Row(fields) for fields in csv.DictReader(file)]
    return [row for row in everything if row.fields["accountant"].startswith(accountants)]
