"""Figure 2 of the paper."""

import pytest

from dpexp._validate import UserError
from dpexp.accounting.figures import curves_in_csv, figure_2

EPOCHS = (10, 100, 400)


@pytest.fixture(scope="module")
def curves():
    return {curve.name: curve for curve in figure_2(q=0.01, sigma=4, delta=1e-5, epochs=EPOCHS)}


def test_the_papers_two_numbers_at_100_epochs(curves):
    assert round(float(curves["moments"].epsilons[1]), 2) == 1.26
    assert round(float(curves["paper_strong_composition"].epsilons[1]), 2) == 9.34
    assert float(curves["paper_strong_composition"].epsilons[2]) == pytest.approx(24.205, abs=5e-3)


def test_the_message_of_the_figure_survives_and_grows(curves):
    # note 1.4: certified Kairouz-Oh-Viswanath 14.18 and 38.00, exact 0.946867 and 2.033065
    certified, exact = curves["strong_composition"].epsilons, curves["exact"].epsilons
    assert 10 < float(certified[1]) < 14.2
    assert 25 < float(certified[2]) < 38.1
    assert float(exact[1]) == pytest.approx(0.946866800764, rel=1e-9)
    assert float(exact[2]) == pytest.approx(2.033065265045, rel=1e-9)


def test_certified_lines_lie_above_the_exact_one(curves):
    for index in range(len(EPOCHS)):
        exact = float(curves["exact"].epsilons[index])
        for name in ("pld", "rdp", "moments", "strong_composition"):
            assert curves[name].kind == "certified"
            assert float(curves[name].epsilons[index]) >= exact * (1 - 1e-10)


def test_every_column_says_its_kind(curves):
    head = next(curves_in_csv(EPOCHS, list(curves.values())))
    assert head.startswith("epochs,moments (certified),paper_strong_composition (heuristic),")
    assert len(list(curves_in_csv(EPOCHS, list(curves.values())))) == 4


def test_no_printed_figure_is_below_the_one_computed(curves):
    lines = list(curves_in_csv(EPOCHS, list(curves.values())))[1:]
    for index, line in enumerate(lines):
        for text, curve in zip(line.split(",")[1:], curves.values(), strict=True):
            computed = float(curve.epsilons[index])
            assert computed <= float(text) <= computed * (1 + 1e-9)


def test_no_epochs_are_refused():
    with pytest.raises(UserError, match="epochs"):
        figure_2(q=0.01, sigma=4, delta=1e-5, epochs=[])
    with pytest.raises(UserError, match="epochs"):
        figure_2(q=0.01, sigma=4, delta=1e-5, epochs=[0])
