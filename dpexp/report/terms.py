"""What two runs must have in common for their ε and accuracy to be drawn on one curve."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Self, final

from dpexp.accounting import Relation
from dpexp.report.stored import StoredRun

__all__ = ["NAMES", "Terms", "differing"]

NAMES = {
    "experiment": "experiment",
    "data": "training data",
    "test_split": "test split",
    "delta": "δ",
    "relation": "neighboring relation",
    "sampler": "sampler",
    "accountant": "accountant",
    "kind": "kind of ε",
    "budget": "budget terms",
    "randomness": "lots and noise",
    "procedure": "what ε is of",
}
"""The terms in words, in the order in which they are shown."""

_UNKNOWN = "not recorded"
_PHRASES = {
    "delta": "δ = {}",
    "test_split": "{} test split",
    "sampler": "{} lots",
    "budget": "budget terms {}",
    "randomness": "{} lots and noise",
    "procedure": "ε of {}",
}


@final
@dataclass(frozen=True, kw_only=True)
class Terms:
    """Under which terms the ε of a run holds, and on what its accuracy was measured; all in words.

    Attributes:
        experiment: The dpexp experiment.
        data: The data set, and N.
        test_split: Whether the test accuracy is of a public split; a private one is not covered by ε.
        delta: δ.
        relation: What neighbors differ in.
        sampler: How lots are drawn.
        accountant: Which one proved ε.
        kind: certified, or whatever else the ε is.
        budget: What the spending is held to.
        randomness: Secret, or keyed by the seed, which guarantees nothing.
        procedure: ε of one run, or of a whole private selection.
    """

    experiment: str
    data: str
    test_split: str
    delta: str
    relation: str
    sampler: str
    accountant: str
    kind: str
    budget: str
    randomness: str
    procedure: str

    @classmethod
    def of(cls, run: StoredRun) -> Self:
        """The terms of a run that claims an ε."""
        params, tags = run.params, run.tags
        return cls(
            experiment=run.experiment,
            data=_data(run),
            test_split="private (not covered by ε)" if run.split_prefix else "public",
            delta=_UNKNOWN if run.delta is None else f"{run.delta!r}",
            relation=_relation(params.get("privacy.relation")),
            sampler=_words_of_class(params.get("sampling._target_"), "Sampling"),
            accountant=tags.get("dpexp.accountant") or _words_of_class(params.get("accountant._target_"), ""),
            kind=tags.get("dpexp.epsilon_kind", _UNKNOWN),
            budget=_budget(run),
            randomness="keyed (no guarantee)" if run.is_deterministic else "secret",
            procedure="a whole private selection" if run.is_selection else "one run",
        )

    @property
    def caveats(self) -> list[str]:
        """What its figures are not, even where nothing is compared."""
        found = [] if self.randomness == "secret" else ["ε is arithmetic, not a guarantee"]
        found += [] if self.procedure == "one run" else [f"ε is of {self.procedure}"]
        found += [] if self.kind == "certified" else [f"ε is no proven bound: {self.kind}"]
        return found + ([] if self.test_split == "public" else ["accuracy not covered by ε"])

    def in_words(self, names: Iterable[str]) -> str:
        """Some of the terms as a phrase."""
        return ", ".join(_PHRASES.get(name, "{}").format(getattr(self, name)) for name in names)


def differing(terms: Sequence[Terms]) -> list[str]:
    """The attributes in which not all terms agree."""
    rows = [asdict(each) for each in terms]
    return [name for name in NAMES if len({row[name] for row in rows}) > 1]


def _data(run: StoredRun) -> str:
    name, rows = run.params.get("data.name", _UNKNOWN), run.params.get("data.num_examples", "?")
    return f"{name}, N = {rows}"


def _relation(word: str | None) -> str:
    known = {str(relation): relation.in_words for relation in Relation}
    return _UNKNOWN if word is None else known.get(word, word)


def _budget(run: StoredRun) -> str:
    rule = run.tags.get("dpexp.budget") or _words_of_class(run.params.get("budget._target_"), "Budget")
    shared = run.tags.get("dpexp.budget_id")
    return rule if shared is None else f"{rule} {shared}"


def _words_of_class(target: str | None, ending: str) -> str:
    """`fixed size` of `dpexp.lots.FixedSizeSampling`."""
    if not target:
        return _UNKNOWN
    name = target.rpartition(".")[2].removesuffix(ending) or target
    spaced = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name)
    return spaced.strip()
