"""Fixed features: computed once, before training; what they cost is charged."""

from dpexp.features.dp_pca import DPPCA
from dpexp.features.features import Features, FittedFeatures, KeepsFitted, NoFeatures

__all__ = ["DPPCA", "Features", "FittedFeatures", "KeepsFitted", "NoFeatures"]
