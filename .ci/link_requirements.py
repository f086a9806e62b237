"""Links into another environment what a distribution there requires, and what that requires, from this one.

    python link_requirements.py NAME SITE_PACKAGES

That is what pip would unpack there a second time. What only an extra of ours asks for stays out, so that a
program that needs it fails there; `pip check` tells of versions.
"""

import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement


def required(by: Distribution, extras: frozenset[str]) -> Iterator[Requirement]:
    """The requirements that hold here, with these extras."""
    for requirement in map(Requirement, by.requires or []):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras | {""}):
            yield requirement


def closure(root: Distribution) -> dict[str, Distribution]:
    """All that the root needs, by name, without itself."""
    found: dict[str, Distribution] = {}
    seen, waiting = set(), list(required(root, frozenset()))
    while waiting:
        requirement = waiting.pop()
        wanted = (requirement.name.lower(), frozenset(requirement.extras))
        if wanted not in seen:
            seen.add(wanted)
            found[requirement.name] = distribution(requirement.name)
            waiting += required(found[requirement.name], wanted[1])
    return found


def link(name: str, there: Path) -> None:
    """Links packages, modules and metadata, as a whole."""
    [root] = [each for each in distributions(path=[str(there)]) if each.name == name]
    for each in closure(root).values():
        for top in {file.parts[0] for file in each.files or []} - {"..", "__pycache__"}:
            if not (there / top).exists():
                (there / top).symlink_to(each.locate_file(top))


if __name__ == "__main__":
    link(sys.argv[1], Path(sys.argv[2]))
