"""What may be chosen from earlier outputs, and which check keeps the guarantee then."""

from dataclasses import dataclass

__all__ = ["ADAPTIVITY", "Adaptivity", "adaptivity_table"]


@dataclass(frozen=True, kw_only=True)
class Adaptivity:
    """One kind of adaptivity.

    Attributes:
        varies: What is chosen, and from what.
        check: What must be checked, and when.
        tool: What in this package does it; "none" where nothing may.
        source: Where the claim comes from.
    """

    varies: str
    check: str
    tool: str
    source: str


ADAPTIVITY = (
    Adaptivity(
        varies="nothing: every q_t, σ_t and the last step T are fixed before the first",
        check="before step t+1: ε(t+1) <= ε. The step it stops at can be computed before training",
        tool="Account, lots_within; any accountant",
        source="Abadi et al. (2016), arXiv 1607.00133v2, Theorem 2.1",
    ),
    Adaptivity(
        varies="the clip norm C_t from noisy outputs; noise multiplier and q fixed",
        check="as above: what a step costs does not depend on C_t",
        tool="Account, with_fraction_query",
        source="Andrew et al. (2021), arXiv 1905.03871",
    ),
    Adaptivity(
        varies="the stop, from noisy outputs; the last possible step T fixed",
        check="claim ε(T); to claim less, ε at the stop, run an odometer from the start",
        tool="Account; RenyiOdometer",
        source="post-processing; Ville's inequality (filters.py)",
    ),
    Adaptivity(
        varies="σ_t or q_t from noisy outputs",
        check="before step t+1: Σ α(λ) <= B(λ), at one order fixed in advance or several that share δ",
        tool="RenyiFilter; RenyiOdometer",
        source="Feldman and Zrnic (2021), arXiv 2008.11193; proof in filters.py",
    ),
    Adaptivity(
        varies="σ_t from noisy outputs, every step on all rows (q = 1)",
        check="before step t+1: Σ 1/σ² <= μ²",
        tool="GaussianFilter",
        source="Smith and Thakurta (2022), arXiv 2210.17520",
    ),
    Adaptivity(
        varies="σ_t or q_t, checked order by order, each against the full δ",
        check="INVALID: an adversary reaches 1.78 δ",
        tool="none",
        source="tests/accounting/test_filters.py",
    ),
    Adaptivity(
        varies="σ_t or q_t, checked by composing loss distributions or trade-off curves",
        check="INVALID in general: valid only for families that are totally ordered when composed",
        tool="none",
        source="arXiv 2602.06756v1 (abstract)",
    ),
)


def adaptivity_table() -> str:
    """The table as Markdown."""
    rows = [(row.varies, row.check, row.tool, row.source) for row in ADAPTIVITY]
    head = ("what is chosen", "valid check", "tool", "source")
    lines = [head, ("---",) * 4, *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
