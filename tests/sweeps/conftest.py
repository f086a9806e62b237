"""Sweeps of two lots, some of which fail."""

import pytest

from dpexp.sanitizer import Sanitizer
from tests.sweeps.store import Store


@pytest.fixture
def store(outputs):
    return Store(outputs)


@pytest.fixture
def failing(monkeypatch):
    """Makes the lots of jobs with σ = 4 and seed 0 raise what is in the list."""
    release, error = Sanitizer.release, []

    def release_or_fail(self, sums, step, *arguments):
        if error and step.groups[0].noise_multiplier == 4:
            raise error.pop()
        return release(self, sums, step, *arguments)

    monkeypatch.setattr(Sanitizer, "release", release_or_fail)
    return error
