"""The rooms of docs/design/architecture.md: a module imports only from its own floor and below."""

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

FLOORS = [
    ["_validate", "folders"],
    [
        "accounting",
        "schedules",
        "streams",
        "lots",
        "clip_rules",
        "plan",
        "planning",
        "privacy",
        "ledger",
        "budgets",
        "options",
        "trust",
        "durable",
        "allocator",
        "stopping",
        "configuration",
    ],
    [
        "noise",
        "clipping",
        "gradients",
        "sanitizer",
        "features",
        "models",
        "data",
        "optimizers",
        "averaging",
        "forward",
        "memory",
        "augmentation",
        "checkpoint",
        "inference",
    ],
    ["datamodule", "module", "callbacks", "checkpointing", "trainer", "divergence"],
    ["spool", "delivery", "tracking", "defaults", "experiment"],
    [
        "console",
        "budget_view",
        "plots",
        "statement",
        "strict",
        "artifact",
        "record",
        "resumption",
        "price",
        "rehearsal",
    ],
    ["training", "tasks", "ui", "reproduction", "sweeps", "notebook", "selection", "report"],
    ["cli", "plugins", "__main__"],
]
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
PACKAGE = REPOSITORY / "dpexp"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")
HEAVY = ["torch", "pytorch_lightning", "mlflow", "pandas", "sklearn", "matplotlib", "pooch", "requests"]


def room_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@functools.cache
def imported_modules(path):
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            found += [node.module, *(f"{node.module}.{name.name}" for name in node.names)]
    return found


def imported_rooms(path):
    parts = (name.split(".") for name in imported_modules(path))
    return {names[1] for names in parts if names[0] == "dpexp" and len(names) > 1 and names[1] in FLOOR_OF}


def test_every_room_has_a_floor():
    assert {room_of(path) for path in MODULES} == set(FLOOR_OF)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_downward(path):
    room = room_of(path)
    above = {other for other in imported_rooms(path) if FLOOR_OF[other] > FLOOR_OF[room]}
    assert not above, f"{room} imports from above: {above}"


def test_no_two_rooms_import_each_other():
    edges = {}
    for path in MODULES:
        edges.setdefault(room_of(path), set()).update(imported_rooms(path) - {room_of(path)})
    for room, others in edges.items():
        assert not {other for other in others if room in edges.get(other, ())}, room


@pytest.mark.parametrize("floor", [0, 1])
def test_the_privacy_arithmetic_knows_no_torch(floor):
    for path in MODULES:
        if FLOOR_OF[room_of(path)] == floor:
            roots = {name.split(".")[0] for name in imported_modules(path)}
            assert not roots & {"torch", "pytorch_lightning", "mlflow", "hydra", "omegaconf"}, path


def test_only_the_command_line_imports_hydra():
    for path in MODULES:
        roots = {name.split(".")[0] for name in imported_modules(path)}
        assert room_of(path) in ("cli", "plugins") or not roots & {"hydra", "omegaconf"}, path


LIGHT = [["--help"], ["+experiment=mnist_medium", "--cfg", "job"], ["+experiment=mnist_medium", "task=plan"]]
ONE_AFTER_THE_OTHER = f"""
import runpy, sys
for arguments in {LIGHT!r}:
    sys.argv = ["dpexp", *arguments]
    try:
        runpy.run_module("dpexp", run_name="__main__")
    except SystemExit as end:
        print("ENDED", *arguments, end.code or 0, sorted(set({HEAVY!r}) & set(sys.modules)))
"""


def test_no_heavy_library_is_imported_for_help_for_a_configuration_and_for_a_plan():
    command = [sys.executable, "-c", ONE_AFTER_THE_OTHER]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, check=False)
    ended = [line for line in done.stdout.splitlines() if line.startswith("ENDED")]
    assert ended == [f"ENDED {' '.join(arguments)} 0 []" for arguments in LIGHT], done.stderr[-300:]


def test_no_file_is_longer_than_400_lines():
    for path in [*MODULES, *Path(REPOSITORY / "tests").rglob("*.py")]:
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 400, path


def test_nothing_sets_the_store_of_mlflow_for_the_whole_process():
    # Every later run in the process would go there: monkeypatch sets MLFLOW_TRACKING_URI, and unsets it.
    name = "set_" + "tracking_uri"
    for path in [*MODULES, *(REPOSITORY / "tests").rglob("*.py")]:
        assert name not in path.read_text(encoding="utf-8"), path
