"""What the documentation promises is there."""

import ast
import re

from dpexp.accounting import adaptivity_table
from dpexp.accounting.samplers import table_in_markdown
from tests.conftest import REPOSITORY

DOCS = REPOSITORY / "docs"


def names_of_all_tests():
    names = set()
    for path in (REPOSITORY / "tests").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    return names


def test_every_pitfall_names_a_test_that_exists():
    rows = [
        line
        for line in (DOCS / "pitfalls.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| ") and not line.startswith("| pitfall")
    ]
    assert len(rows) > 20
    known = names_of_all_tests()
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row)
        assert named or "open" in row, row
        assert set(named) <= known, row


def test_every_linked_page_exists():
    for page in [REPOSITORY / "README.md", *DOCS.rglob("*.md")]:
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([\w./-]+)\)", text):
            assert (page.parent / target).exists(), (page, target)
        for target in re.findall(r"`((?:docs|conf|tests)/[\w./-]+)`", text):
            assert "mine" in target or (REPOSITORY / target).exists(), (page, target)


def test_the_tables_of_samplers_and_adaptivity_are_printed_as_they_are_in_the_code():
    assert table_in_markdown() in (DOCS / "theory" / "sampling.md").read_text(encoding="utf-8")
    assert adaptivity_table() in (DOCS / "theory" / "adaptivity.md").read_text(encoding="utf-8")


def test_the_training_loop_of_the_guide_runs_as_it_is_printed(capsys):
    guide = (DOCS / "guide" / "python.md").read_text(encoding="utf-8")
    [loop] = [
        block for block in re.findall(r"```python\n(.*?)```", guide, re.DOTALL) if "Ledger(plan)" in block
    ]
    names = {}
    exec(loop, names)
    found, ledger = names["ledger"].epsilon(), names["ledger"]
    assert ledger.steps == names["plan"].steps == 50
    assert 2.99 < found <= 3
    assert found.kind == "certified"
    assert f"{found!r}"[:20] in capsys.readouterr().out
