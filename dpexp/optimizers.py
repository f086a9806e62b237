"""`DPAdamBC`: Adam whose second moment is corrected for the variance of the privacy noise.

Tang, Shpilevskiy and Lécuyer (2023), "DP-AdamBC: your DP-Adam is actually DP-SGD (unless you apply bias
correction)", arXiv 2312.14334. Everything here is post-processing of released gradients.
"""

from collections.abc import Callable, Iterable
from typing import Any, final

import torch
from torch import Tensor

__all__ = ["DPAdamBC"]


@final
class DPAdamBC(torch.optim.Optimizer):
    """Adam on gradients whose entries carry noise of a known variance Φ.

    The noise adds Φ to the second moment, so that where it dominates Adam divides every entry by the same
    √Φ. The paper subtracts it: θ ← θ - η m̂ / √max(v̂ - Φ, γ'). Without noise (Φ = 0) there
    is nothing to subtract nor to hold off, and the step is that of `torch.optim.Adam`.

    A variance that changes over time enters with the same weights as the squared gradients it came with:
    Φ is then its exponential moving average, corrected for its start as v̂ is.

    Args:
        params: Parameters or groups of them; `noise_variance` is an option of each group, like `lr`, and may
            be set anew before every step.
        lr: η >= 0.
        betas: Decay of the two moments, each in [0, 1).
        eps: Added to the denominator where Φ = 0, as in Adam.
        floor: γ' > 0, the least value of the corrected second moment.
        weight_decay: L2 penalty >= 0, as in Adam.
        noise_variance: Φ = (σC/L)² >= 0, the variance of the noise in each entry of the gradient.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        floor: float = 5e-8,
        weight_decay: float = 0.0,
        noise_variance: float = 0.0,
    ) -> None:
        _expect("learning rate", lr, lr >= 0)
        _expect("betas", betas, len(betas) == 2 and all(0 <= beta < 1 for beta in betas))
        _expect("eps", eps, eps >= 0)
        _expect("floor", floor, floor > 0)
        _expect("weight_decay", weight_decay, weight_decay >= 0)
        _expect("noise_variance", noise_variance, noise_variance >= 0)
        defaults = {
            "lr": lr,
            "betas": tuple(betas),
            "eps": eps,
            "floor": floor,
            "weight_decay": weight_decay,
            "noise_variance": noise_variance,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step from the gradients in `.grad`; returns what `closure` does."""
        result = None
        if closure is not None:
            with torch.enable_grad():
                result = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    _descend(parameter, self.state[parameter], group)
        return result


def _descend(parameter: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
    if not state:
        state.update(step=0, noise=0.0, exp_avg=torch.zeros_like(parameter))
        state["exp_avg_sq"] = torch.zeros_like(parameter)
    gradient = parameter.grad
    assert gradient is not None
    if group["weight_decay"]:
        gradient = gradient.add(parameter, alpha=group["weight_decay"])
    beta1, beta2 = group["betas"]
    state["step"] += 1
    state["exp_avg"].lerp_(gradient, 1 - beta1)
    state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    state["noise"] = beta2 * state["noise"] + (1 - beta2) * group["noise_variance"]
    correction = 1 - beta1 ** state["step"]
    parameter.addcdiv_(state["exp_avg"], _denominator(state, group), value=-group["lr"] / correction)


def _denominator(state: dict[str, Any], group: dict[str, Any]) -> Tensor:
    correction = float(1 - group["betas"][1] ** state["step"])
    second_moment: Tensor = state["exp_avg_sq"]
    if not state["noise"]:  # in the order of operations of torch's Adam, to the last bit
        root: float = correction**0.5
        return (second_moment.sqrt() / root).add_(group["eps"])
    # Tang et al. (2023): √max(v̂ - Φ, γ')
    return ((second_moment - float(state["noise"])) / correction).clamp_(min=group["floor"]).sqrt_()


def _expect(name: str, value: object, valid: bool) -> None:
    if not valid:
        raise ValueError(f"Invalid {name}: {value}")
