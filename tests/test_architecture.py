"""The rooms of docs/design/architecture.md: a module imports only from its own floor and below."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

FLOORS = [
    ["_validate"],
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
        "stopping",
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
    ],
    ["datamodule", "module", "callbacks", "checkpointing", "trainer", "divergence"],
    ["spool", "delivery", "tracking", "experiment"],
    ["console", "budget_view", "plots", "statement", "strict", "record", "resumption"],
    ["training", "tasks", "ui", "reproduction"],
    ["cli", "__main__"],
]
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
PACKAGE = REPOSITORY / "dpexp"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")
HEAVY = ["torch", "pytorch_lightning", "mlflow", "pandas", "sklearn", "matplotlib", "pooch", "requests"]


def room_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_modules(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            yield from [node.module, *(f"{node.module}.{name.name}" for name in node.names)]


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
        assert room_of(path) == "cli" or not roots & {"hydra", "omegaconf"}, path


@pytest.mark.parametrize(
    "statement",
    [
        "import sys, runpy; sys.argv = ['dpexp', '+experiment=mnist_medium', 'task=plan']; "
        "runpy.run_module('dpexp', run_name='__main__')",
        "import sys, runpy; sys.argv = ['dpexp', '+experiment=mnist_medium', '--cfg', 'job']; "
        "runpy.run_module('dpexp', run_name='__main__')",
        "import sys, runpy; sys.argv = ['dpexp', '--help']; runpy.run_module('dpexp', run_name='__main__')",
    ],
    ids=["plan", "cfg", "help"],
)
def test_no_heavy_library_is_imported_by(statement):
    code = (
        f"import sys\ntry:\n    exec({statement!r})\nexcept SystemExit:\n    pass\n"
        f"print('HEAVY', sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, check=False
    )
    assert done.stdout.strip().endswith("HEAVY []"), done.stdout[-300:] + done.stderr[-300:]


def test_no_file_is_longer_than_400_lines():
    for path in [*MODULES, *Path(REPOSITORY / "tests").rglob("*.py")]:
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 400, path
