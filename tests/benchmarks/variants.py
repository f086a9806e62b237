"""One training step (clip, sum, descend; no noise) in every way that is compared."""

import warnings

import torch
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from dpexp.clipping import FlatClipping
from dpexp.gradients import ClipGroup, Compiled, grouped_clipped_sum

__all__ = ["COMPILED", "VARIANTS"]

RATE, CLIP = 1e-3, 1.0


def losses(outputs, targets):
    return cross_entropy(outputs, targets, reduction="none")


def microbatches(inputs, targets, size):
    return zip(inputs.split(size), targets.split(size), strict=True)


def sgd(model, inputs, targets, size):
    optimizer = torch.optim.SGD(model.parameters(), RATE)

    def step():
        for rows, labels in microbatches(inputs, targets, size):
            (cross_entropy(model(rows), labels, reduction="sum") / len(inputs)).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def dpexp(model, inputs, targets, size):
    return _dpexp(model, inputs, targets, size, None)


def dpexp_compiled(model, inputs, targets, size):
    """Gradients written out by one graph of inductor (`compile=inductor`)."""
    return _dpexp(model, inputs, targets, size, Compiled("inductor"))


def _dpexp(model, inputs, targets, size, engine):
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    parameters = dict(model.named_parameters())
    group = ClipGroup(tuple(parameters), FlatClipping(CLIP))

    def step():
        found = grouped_clipped_sum(model, losses, inputs, targets, [group], size, engine=engine)
        for name, parameter in parameters.items():
            parameter.grad = found.sums[name].div_(len(inputs))
        optimizer.step()
        optimizer.zero_grad()

    return step


def opacus_hooks(model, inputs, targets, size):
    from opacus.grad_sample import GradSampleModule

    return _opacus(GradSampleModule(model), inputs, targets, size)


def opacus_functorch(model, inputs, targets, size):
    from opacus.grad_sample import GradSampleModule

    return _opacus(GradSampleModule(model, force_functorch=True), inputs, targets, size)


def _opacus(model, inputs, targets, size):
    from opacus.optimizers import DPOptimizer

    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), RATE),
        noise_multiplier=0.0,
        max_grad_norm=CLIP,
        expected_batch_size=len(inputs),
    )

    def backward(rows, labels):
        cross_entropy(model(rows), labels).backward()

    return _skipping(optimizer, backward, inputs, targets, size)


def opacus_ghost(model, inputs, targets, size):
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    wrapped = GradSampleModuleFastGradientClipping(model, max_grad_norm=CLIP, use_ghost_clipping=True)
    optimizer = DPOptimizerFastGradientClipping(
        torch.optim.SGD(wrapped.parameters(), RATE),
        noise_multiplier=0.0,
        max_grad_norm=CLIP,
        expected_batch_size=len(inputs),
    )
    criterion = DPLossFastGradientClipping(wrapped, optimizer, torch.nn.CrossEntropyLoss(), "mean")

    def backward(rows, labels):
        criterion(wrapped(rows), labels).backward()

    return _skipping(optimizer, backward, inputs, targets, size)


def _skipping(optimizer, backward, inputs, targets, size):
    """Opacus's own way to take a lot in microbatches."""

    def step():
        parts = list(microbatches(inputs, targets, size))
        for i, (rows, labels) in enumerate(parts):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of hooks, on every call
                backward(rows, labels)
            optimizer.signal_skip_step(do_skip=i < len(parts) - 1)
            optimizer.step()
            optimizer.zero_grad()

    return step


def vmap_(model, inputs, targets, size):
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    names = [name for name, _ in model.named_parameters()]

    def one(parameters, row, label):
        return losses(functional_call(model, parameters, (row[None],)), label[None])[0]

    def part(parameters, rows, labels):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of kernels without a batching rule
            found = vmap(grad(one), (None, 0, 0))(parameters, rows, labels)
        norms = torch.stack([found[name].flatten(1).norm(dim=1) for name in names]).norm(dim=0)
        factors = (CLIP / norms).clamp(max=1.0)
        return [torch.tensordot(factors, found[name], dims=1) for name in names]

    def step():
        parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
        parts = [part(parameters, *rows) for rows in microbatches(inputs, targets, size)]
        for parameter, sums in zip(model.parameters(), zip(*parts, strict=True), strict=True):
            parameter.grad = sum(sums) / len(inputs)
        optimizer.step()
        optimizer.zero_grad()

    return step


VARIANTS = {
    "sgd": sgd,
    "dpexp": dpexp,
    "opacus_hooks": opacus_hooks,
    "opacus_functorch": opacus_functorch,
    "opacus_ghost": opacus_ghost,
    "vmap": vmap_,
}
COMPILED = {"dpexp_compiled": dpexp_compiled}
