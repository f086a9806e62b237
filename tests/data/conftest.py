import pooch
import pytest

from dpexp.data import MNIST
from tests.data.files import FILES, digests, serving


@pytest.fixture(autouse=True)
def cache(request, tmp_path, monkeypatch):
    """The cache folder of a data set called `small`, far from the user's, and no npm on the PATH."""
    if request.node.get_closest_marker("data"):
        return None
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / "cache" / project)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return tmp_path / "cache" / "dpexp" / "small"


@pytest.fixture
def small():
    """Declares the small data set of `files`, with changes, and without any source."""

    def declare(**changes):
        files = changes.pop("files", FILES)
        declared = {
            "name": "small",
            "num_examples": 7,
            "num_classes": 3,
            "dimensions": 6,
            "validation_split": "private",
            "test_split": "public",
            "root": None,
            "mirrors": [],
            "npm_package": None,
            "sha256": digests(files),
        }
        return MNIST(**(declared | changes))

    return declare


@pytest.fixture
def web():
    with serving(FILES) as server:
        yield server
