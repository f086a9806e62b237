"""Fixed features: computed once, before training; what they cost is charged."""

from dpexp.features.cache import FeatureCache
from dpexp.features.centering import PrivateCentering
from dpexp.features.chain import Chain
from dpexp.features.dp_pca import DPPCA
from dpexp.features.efficientnet import EfficientNet
from dpexp.features.features import (
    Features,
    FittedFeatures,
    KeepsFitted,
    NoFeatures,
    TakesPublic,
    TakesTokens,
)
from dpexp.features.images import scattering_dimensions
from dpexp.features.minilm import MiniLM
from dpexp.features.normalization import GroupNormalization, PrivateNormalization
from dpexp.features.pretrained import Pretrained, pretrained_dimensions
from dpexp.features.random_projection import RandomProjection
from dpexp.features.scattering import Scattering
from dpexp.features.whitening import PrivateWhitening

__all__ = [
    "DPPCA",
    "Chain",
    "EfficientNet",
    "FeatureCache",
    "Features",
    "FittedFeatures",
    "GroupNormalization",
    "KeepsFitted",
    "MiniLM",
    "NoFeatures",
    "Pretrained",
    "PrivateCentering",
    "PrivateNormalization",
    "PrivateWhitening",
    "RandomProjection",
    "Scattering",
    "TakesPublic",
    "TakesTokens",
    "pretrained_dimensions",
    "scattering_dimensions",
]
