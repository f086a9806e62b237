"""What the jobs of a sweep are told of it, through the environment of whatever process runs them."""

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Self, final

__all__ = ["ENVIRONMENT", "Ticket"]

ENVIRONMENT = "DPEXP_SWEEP"


@final
@dataclass(frozen=True, kw_only=True)
class Ticket:
    """A sweep, as its jobs see it.

    Attributes:
        run_id: The MLflow run of the parent.
        experiment: The MLflow experiment that holds parent and children.
        goes_on: The sweep was started before: some jobs may have runs already.
    """

    run_id: str
    experiment: str
    goes_on: bool

    @classmethod
    def found(cls) -> Self | None:
        """The one that this process was given; None outside a sweep."""
        text = os.environ.get(ENVIRONMENT)
        return None if text is None else cls(**json.loads(text))

    @contextlib.contextmanager
    def given(self) -> Iterator[None]:
        """Within the block, this process and those that it starts have the ticket."""
        os.environ[ENVIRONMENT] = json.dumps(asdict(self))
        try:
            yield
        finally:
            del os.environ[ENVIRONMENT]
