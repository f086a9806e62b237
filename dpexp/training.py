"""The training task: data, features, lots, Algorithm 1, evaluation and record, in this order."""

import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from weakref import WeakSet

import pytorch_lightning as pl
import torch
from rich.console import Console

from dpexp import _validate
from dpexp.allocator import keep_freed_memory
from dpexp.budgets import Share
from dpexp.callbacks import TIMES, LotProgress, Trajectory, spending_recorded
from dpexp.checkpointing import Checkpoints, LotSeeds
from dpexp.console import plan_table, show_job_result, show_result
from dpexp.datamodule import LotDataModule
from dpexp.divergence import FiniteParameters
from dpexp.experiment import Experiment, Result
from dpexp.features import FittedFeatures, KeepsFitted
from dpexp.gradients import Checked
from dpexp.ledger import Ledger, Terms
from dpexp.module import DPModule
from dpexp.noise import GaussianNoise, Noise, NoNoise, SecureGaussianNoise
from dpexp.plan import PrivacyPlan
from dpexp.planning import epsilons_at_end
from dpexp.record import record_end, record_start, split_prefix
from dpexp.rehearsal import check_module, fit_into_memory, options_of, views_of
from dpexp.resumption import HEAD_TAG, Places, Resumption, resumed
from dpexp.stopping import Stopped
from dpexp.streams import Stream
from dpexp.strict import covered, covered_tags, silence
from dpexp.tracking import Opener, Recording, flatten
from dpexp.tracking.tags import PARENT_TAG
from dpexp.trainer import autocast_of, fit, make_trainer, refuse_reports, test, validate

__all__ = ["rehearse", "rehearse_data", "train"]

_log = logging.getLogger(__name__)
_made: WeakSet[torch.nn.Module] = WeakSet()  # models of this process, each of one run


def train(experiment: Experiment, console: Console | None = None) -> Result:
    """Runs one experiment by its plan, to the recorded result; or goes on with the run that it names.

    Args:
        experiment: What is run.
        console: Where plan, progress and result are shown; None for the screen.

    Raises:
        UserError: The configuration is impossible, the data cannot be had, the model mixes examples, or
            the run to resume cannot be.
        LedgerError: What is spent cannot be made durable.
    """
    keep_freed_memory()
    console, plan = console or Console(), experiment.plan()
    if experiment.resume is None:
        plan, share = _opened(experiment, plan)
        terms = Terms.of(plan, experiment.config)
        return _train(console, experiment, Ledger(plan, shared=share), terms, share, None)
    plan, share = _joined(experiment, plan)
    terms = Terms.of(plan, experiment.config)
    with resumed(experiment, plan, terms, share) as earlier:
        return _train(console, experiment, earlier.ledger, terms, share, earlier)


def rehearse(experiment: Experiment) -> None:
    """Makes model, optimizer and trainer, and checks them on random rows; touches no data.

    Raises:
        UserError: This experiment cannot be trained.
    """
    plan = experiment.plan()
    with torch.random.fork_rng():
        torch.manual_seed(experiment.seed)
        check_module(_module(experiment, plan, Ledger(plan), NoNoise()), experiment)
        _new_model(experiment)  # every run will need another one
    if experiment.strict:
        refuse_reports(experiment.trainer)
    make_trainer(experiment.trainer, plan=plan, callbacks=[], folder=experiment.tracking.folder)


def rehearse_data(experiment: Experiment) -> None:
    """Finds, verifies and reads the data; releases nothing.

    Raises:
        UserError: They cannot be had, or are not what is declared.
    """
    plan = experiment.plan()
    with silence(strict=experiment.strict):
        _datamodule(experiment, plan, Ledger(plan), Stream.secret(), None).prepare_data()


def _train(
    console: Console,
    experiment: Experiment,
    ledger: Ledger,
    terms: Terms,
    share: Share | None,
    earlier: Resumption | None,
) -> Result:
    plan = ledger.plan
    at_end, _ = epsilons_at_end(plan, ledger.lost)
    stream = Stream.keyed_by(experiment.seed) if plan.deterministic else Stream.secret()
    with silence(strict=experiment.strict), torch.random.fork_rng():
        torch.manual_seed(experiment.seed)
        module = _module(experiment, plan, ledger, _noise(plan, stream.child("noise")))
        checked = check_module(module, experiment)
        fit_into_memory(console, module, experiment)
        if earlier is not None and earlier.checkpoint is not None:
            module.restore(earlier.checkpoint.state)
        # The seed governs initialisation only: dropout and the like are as secret as the lots.
        torch.manual_seed(stream.child("torch").integer())
        if experiment.strict:
            refuse_reports(experiment.trainer)
        trainer = make_trainer(
            experiment.trainer,
            plan=plan,
            callbacks=_callbacks(console, experiment, plan, stream),
            folder=experiment.tracking.folder,
            first=ledger.steps,
        )
        if not experiment.evaluates("validation"):
            trainer.limit_val_batches = 0
        datamodule = _datamodule(experiment, plan, ledger, stream, earlier)
        rows = [("gradients", _gradients_in_words(checked)), *_resumed_rows(earlier)]
        console.print(plan_table(experiment, plan, at_end, rows))
        datamodule.prepare_data()
        if share is not None:
            share.record_digest(datamodule.digest(share.digest_key))
        with (
            _recorded(experiment, plan, ledger, earlier) as run,
            _kept(experiment, run.run_id, ledger, terms),
            _rest_given_back(ledger),
        ):
            trainer.callbacks[0:0] = [  # type: ignore[attr-defined]
                _trajectory(run, experiment),
                *_checkpoints(run, experiment, terms),
            ]
            _record_data(experiment, run.run_id, datamodule, earlier)
            if earlier is None:
                record_start(run, experiment, plan, datamodule, terms)
            _mirror(run, ledger, share)
            _set_up(run.run_id, experiment, ledger, datamodule)
            run.record(ledger.lots, _of_features(datamodule.fitted))
            _fit(trainer, module, datamodule)
            _evaluate(experiment, trainer, module, datamodule)
            result = record_end(run, experiment, module, datamodule, at_end)
            _mirror(run, ledger, share)
            ledger.finish()
    show = show_job_result if PARENT_TAG in experiment.tags else show_result
    show(console, result)
    return result


def _of_features(fitted: FittedFeatures) -> dict[str, float]:
    return {f"nonprivate/{name}": value for name, value in fitted.nonprivate.items()}


def _opened(experiment: Experiment, plan: PrivacyPlan) -> tuple[PrivacyPlan, Share | None]:
    """The plan under the terms of the budget that it shares, which holds the whole of it; else as it is."""
    return _under(plan, experiment.budget.open(plan, label=_run_name(experiment, plan)))


def _joined(experiment: Experiment, plan: PrivacyPlan) -> tuple[PrivacyPlan, Share | None]:
    """The same for a run that goes on, whose rest the budget is asked for block by block."""
    return _under(plan, experiment.budget.join(plan, label=_run_name(experiment, plan)))


def _under(plan: PrivacyPlan, share: Share | None) -> tuple[PrivacyPlan, Share | None]:
    if share is None or plan.guarantee is None:
        return plan, None
    return replace(plan, guarantee=replace(plan.guarantee, terms=share.terms)), share


def _mirror(run: Recording, ledger: Ledger, share: Share | None) -> None:
    """MLflow shows the shared budget; only the store counts."""
    if share is not None:
        share.attach(run.run_id)
        run.record(ledger.lots, share.metrics())


@contextlib.contextmanager
def _recorded(
    experiment: Experiment, plan: PrivacyPlan, ledger: Ledger, earlier: Resumption | None
) -> Iterator[Recording]:
    """The run in the store, or what strict mode lets through to it; what was spent is told in any case."""
    opened_by: Opener = experiment.recording or experiment.tracking.run
    with opened_by(
        name=experiment.name,
        run_name=_run_name(experiment, plan),
        run_id=None if earlier is None else earlier.run_id,
        tags=covered_tags(experiment.tags) if experiment.strict else experiment.tags,
    ) as opened:
        run = covered(opened, flatten(experiment.config), strict=experiment.strict)
        with spending_recorded(run, ledger):
            yield run


def _record_data(
    experiment: Experiment, run_id: str, datamodule: LotDataModule, earlier: Resumption | None
) -> None:
    """Which rows a run is on is kept beside its ledger, and must stay."""
    places = Places(experiment.tracking.folder, run_id)
    digest = datamodule.digest(experiment.tracking.dataset_key())
    if earlier is None:
        places.keep_digest(digest)
    else:
        places.check_digest(digest, experiment.data.name)


@contextlib.contextmanager
def _kept(experiment: Experiment, run_id: str, ledger: Ledger, terms: Terms) -> Iterator[None]:
    """From here on every charge is durable."""
    if ledger.journal is not None:
        yield
        return
    with Places(experiment.tracking.folder, run_id).open_ledger(terms, ledger.plan) as journal:
        ledger.keep(journal)
        yield


@contextlib.contextmanager
def _rest_given_back(ledger: Ledger) -> Iterator[None]:
    """Under a filter, a run that is stopped returns what it reserved and has not drawn; else it is told."""
    try:
        yield
    except Stopped:
        if ledger.declares_filter:
            ledger.give_back()
        elif ledger.account is not None and ledger.undrawn_lots:
            _log.warning(
                "Lots reserved and not drawn, which stay charged: %d (budget=filter gives them back).",
                ledger.undrawn_lots,
            )
        raise


def _set_up(run_id: str, experiment: Experiment, ledger: Ledger, datamodule: LotDataModule) -> None:
    """Fits the features, and keeps what was released for them."""
    released = list(ledger.releases)
    datamodule.setup("fit")
    features, keep = experiment.features, options_of(experiment).checkpoint.keep
    if ledger.releases != released and keep and isinstance(features, KeepsFitted):
        assert ledger.journal is not None
        folder = Places(experiment.tracking.folder, run_id).checkpoints(keep)
        arrays = features.arrays(datamodule.fitted)
        folder.write_features(
            {name: torch.from_numpy(array) for name, array in arrays.items()}, ledger.journal
        )


def _fit(trainer: pl.Trainer, module: DPModule, datamodule: LotDataModule) -> None:
    """Takes the steps that are left; there may be none where only evaluations were interrupted."""
    first = module.ledger.steps
    if first < module.plan.steps:
        fit(trainer, module, datamodule)
        _check_counts(module.plan, module.ledger, first, datamodule.lots_drawn, trainer.global_step)


def _evaluate(
    experiment: Experiment, trainer: pl.Trainer, module: DPModule, datamodule: LotDataModule
) -> None:
    if experiment.evaluates("validation"):
        validate(trainer, module, datamodule)  # so that the last ε has its accuracy too
    module.evaluation = None
    if experiment.evaluates("test"):
        test(trainer, module, datamodule)


def _checkpoints(run: Recording, experiment: Experiment, terms: Terms) -> list[pl.Callback]:
    settings = options_of(experiment).checkpoint
    if settings.keep == 0:
        return []
    folder = Places(experiment.tracking.folder, run.run_id).checkpoints(settings.keep)
    return [
        Checkpoints(
            folder,
            run_id=run.run_id,
            terms=terms.hash.hex(),
            every_seconds=settings.every_seconds,
            noted=lambda head: run.tag_soon(HEAD_TAG, head.hash),
        )
    ]


def _resumed_rows(earlier: Resumption | None) -> list[tuple[str, str]]:
    return [] if earlier is None else [("resumed", earlier.in_words())]


def _callbacks(
    console: Console, experiment: Experiment, plan: PrivacyPlan, stream: Stream
) -> list[pl.Callback]:
    progress = LotProgress(
        console,
        validation_privacy=experiment.data.validation_privacy,
        columns=() if experiment.strict else TIMES,
    )
    seeds = [LotSeeds(stream.child("torch"))] if plan.deterministic else []
    return [FiniteParameters(), progress, *seeds]


def _run_name(experiment: Experiment, plan: PrivacyPlan) -> str:
    """Told apart by what is usually varied; MLflow's own random names repeat under a fixed seed."""
    if plan.guarantee is None:
        return f"{experiment.name} no privacy, seed {experiment.seed}"
    sigma = ", ".join(dict.fromkeys(group.noise_multiplier.in_words for group in plan.groups))
    return f"{experiment.name} σ={sigma} T={plan.steps} seed={experiment.seed}"


def _module(experiment: Experiment, plan: PrivacyPlan, ledger: Ledger, noise: Noise) -> DPModule:
    size, views = experiment.physical_batch_size, views_of(experiment)
    return DPModule(
        model=_new_model(experiment),
        plan=plan,
        ledger=ledger,
        noise=noise,
        optimizer=experiment.optimizer,
        learning_rate=experiment.schedule,
        physical_batch_size=None if isinstance(size, str) else size,
        ema=options_of(experiment).ema,
        autocast=autocast_of(experiment.trainer),
        views=None if views is None else views.count,
        compiler=options_of(experiment).compile,
    )


def _new_model(experiment: Experiment) -> torch.nn.Module:
    """A model that no other run has trained, whose rows and results would be in this one too.

    Raises:
        UserError: It was made before.
    """
    model = experiment.model()
    if model in _made:
        hint = "This run would go on from what another one trained: make it inside the function."
        expected = "a function that makes a new one at each call, such as lambda: MLP(64, [32], 10)"
        raise _validate.refuse("model", f"the same {type(model).__qualname__} as before", expected, hint)
    _made.add(model)
    return model


def _datamodule(
    experiment: Experiment, plan: PrivacyPlan, ledger: Ledger, stream: Stream, earlier: Resumption | None
) -> LotDataModule:
    return LotDataModule(
        plan=plan,
        data=experiment.data,
        features=experiment.features,
        ledger=ledger,
        lots=stream.child("lots"),
        noise=_noise(plan, stream.child("features")),
        views=views_of(experiment),
        fitted=None if earlier is None else earlier.features,
    )


def _trajectory(run: Recording, experiment: Experiment) -> Trajectory:
    validation = f"{split_prefix(experiment.data.validation_privacy)}val"
    return Trajectory(run, every=experiment.tracking.every, validation=validation)


_NOISES: Mapping[str, Callable[[Stream], Noise]] = {"default": GaussianNoise, "secure": SecureGaussianNoise}


def _noise(plan: PrivacyPlan, stream: Stream) -> Noise:
    return NoNoise() if plan.guarantee is None else _NOISES[plan.noise](stream)


_PROVEN = "; a second backward pass in each lot proves that no example moves to another's row"


def _gradients_in_words(checked: Checked) -> str:
    """The rules that per-example gradients go by, and what the behavioural check found."""
    counts = Counter(checked.rules.values())
    rules = ", ".join(f"{rule} for {count} parameters" for rule, count in counts.items())
    return (
        f"{rules}; on {checked.rows} random rows no row reached another's gradient, and sums were those of "
        f"single examples to {checked.deviation:.0e}{_PROVEN if checked.proven else ''}"
    )


def _check_counts(plan: PrivacyPlan, ledger: Ledger, first: int, drawn: int, stepped: int) -> None:
    """Since the `first` step of this process."""
    counts = [plan.steps - first, drawn, ledger.steps - first, stepped]
    if len(set(counts)) != 1:
        raise RuntimeError(f"Lots planned, drawn, charged and stepped must be equal, found {counts}.")
