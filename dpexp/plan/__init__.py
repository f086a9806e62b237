"""`PrivacyPlan`: the one frozen object that sampler, clipping, noise, divisor and accountant all read.

Nearly every privacy bug in DP-SGD code is two of these disagreeing; here they cannot. The plan is made
from the configuration alone, before any data is touched, and needs no torch.
"""

from dpexp.plan.guarantee import Guarantee
from dpexp.plan.plan import COMMON_LOT, LONGEST_SCHEDULE, PrivacyPlan
from dpexp.plan.step import Group, GroupStep, LotSpec, StepPlan

__all__ = [
    "COMMON_LOT",
    "LONGEST_SCHEDULE",
    "Group",
    "GroupStep",
    "Guarantee",
    "LotSpec",
    "PrivacyPlan",
    "StepPlan",
]
