"""What fits in memory, against known sizes, and inside a run."""

import pytest
import torch

from dpexp._validate import UserError
from dpexp.memory import largest_batch, peak_bytes
from dpexp.models import MLP
from tests.plans import private_plan
from tests.test_module import lots_of, train
from tests.test_training import TINY, artifact, only_run, store  # noqa: F401

MB = 2**20


def test_the_peak_counts_what_lives_at_one_time_and_views_once():
    base = torch.zeros(1000)  # made outside: 0
    assert peak_bytes(lambda: None) == 0
    assert peak_bytes(lambda: base + 1) == 4000
    assert peak_bytes(lambda: [base + 1 for _ in range(5)]) == 20_000
    assert peak_bytes(lambda: (base + 1).view(10, 100).T[:5]) == 4000

    def one_after_the_other():
        for _ in range(5):
            kept = base + 1
            del kept

    assert peak_bytes(one_after_the_other) == 4000


def test_the_peak_sees_the_backward_pass():
    weights = torch.zeros(100, 1000, requires_grad=True)
    inputs = torch.ones(10, 1000)
    forward = peak_bytes(lambda: (inputs @ weights.T).sum())
    both = peak_bytes(lambda: torch.autograd.grad((inputs @ weights.T).sum(), weights))
    assert forward < 5000
    assert both >= weights.numel() * 4


@pytest.mark.parametrize(("fixed", "per_row"), [(0, 40_000), (300_000, 4000), (900_000, 400)])
def test_the_largest_that_fits_to_a_few_percent_and_never_more(fixed, per_row):
    tried = []

    def microbatch(rows):
        tried.append(fixed + rows * per_row)
        return torch.zeros(fixed // 4), torch.zeros(rows * per_row // 4)

    found = largest_batch(microbatch, memory_mb=1, at_most=10**6)
    best = (MB - fixed) // per_row
    assert 0.98 * best <= found <= best
    assert max(tried[2:]) <= MB


def test_no_more_than_needed():
    assert largest_batch(lambda rows: torch.zeros(rows), memory_mb=1, at_most=37) == 37


def test_what_grows_faster_than_in_proportion_stays_within_the_memory():
    found = largest_batch(lambda rows: torch.zeros(rows, rows), memory_mb=1, at_most=10**6)
    assert 1 <= found <= 512


def test_one_example_that_does_not_fit_is_refused_with_what_it_takes():
    with pytest.raises(UserError, match=r"memory_mb = 1: expected at least 2, which one example takes"):
        largest_batch(lambda rows: torch.zeros(rows * 400_000), memory_mb=1, at_most=10)


@pytest.mark.parametrize("memory", [0.05, 0.2, 100])
def test_what_is_found_changes_no_update(memory):
    plan = private_plan(num_examples=400, lot_size=40, steps=4, epsilon=None)
    lots = lots_of(plan, torch.float32)
    whole, module = train(plan, lots)

    def microbatch(rows):
        module.rehearse(torch.rand(rows, 5), torch.randint(3, (rows,)))

    size = largest_batch(microbatch, memory_mb=memory, at_most=80)
    assert size >= 1
    parts, _ = train(plan, lots, size=size)
    for name, expected in whole.items():
        torch.testing.assert_close(parts[name], expected, rtol=1e-6, atol=1e-6)


def test_measuring_leaves_the_model_as_it_is():
    plan = private_plan(num_examples=400, lot_size=40, steps=1, epsilon=None)
    _, module = train(plan, lots_of(plan, torch.float32), model=MLP(5, [6], 3))
    before = {name: value.clone() for name, value in module.model.state_dict().items()}
    peak_bytes(lambda: module.rehearse(torch.rand(9, 5), torch.randint(3, (9,))))
    assert all(torch.equal(before[name], value) for name, value in module.model.state_dict().items())
    assert all(p.grad is None for p in module.model.parameters())
    assert module.ledger.lots == 1


def test_a_run_that_sizes_its_microbatches_ends_where_a_fixed_one_does(dpexp, store, capsys):  # noqa: F811
    keys = ["privacy.steps=5", "privacy.deterministic=true"]
    assert dpexp(*TINY, *keys, "physical_batch_size=auto", "memory_mb=0.2") == 0
    assert "examples fit into memory_mb" in capsys.readouterr().out
    automatic = torch.load(artifact(store, only_run(store), "model.pt"), weights_only=True)["model"]
    store.delete_run(only_run(store).info.run_id)
    assert dpexp(*TINY, *keys) == 0
    fixed = torch.load(artifact(store, only_run(store), "model.pt"), weights_only=True)["model"]
    for name, expected in fixed.items():
        torch.testing.assert_close(automatic[name], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("keys", "parts"),
    [
        (["physical_batch_size=auto", "memory_mb=0.001"], ["memory_mb = 0.001", "one example takes"]),
        (["memory_mb=0"], ["memory_mb = 0", "> 0"]),
        (["physical_batch_size=all"], ["physical_batch_size = 'all'", "auto"]),
    ],
)
def test_mistakes_are_named(dpexp, outputs, capsys, keys, parts):
    assert dpexp(*TINY, *keys) == 1
    error = capsys.readouterr().err
    assert all(part in error for part in parts)
    assert len(error.splitlines()) < 8
