"""The `privacy` config group: what a user asks for, checked, and made into a plan."""

from dpexp.privacy.dp_sgd import DPSGD
from dpexp.privacy.none import NoPrivacy
from dpexp.privacy.privacy import Privacy

__all__ = ["DPSGD", "NoPrivacy", "Privacy"]
