"""Plain `nn.Module`s, each from rows `(B, in_features)` to logits `(B, out_features)`."""

from dpexp.models.cifar_cnn import CifarCNN
from dpexp.models.mlp import MLP
from dpexp.models.resnet import ResNet
from dpexp.models.standardized import StandardizedConv2d
from dpexp.models.tempered_cnn import TemperedCNN
from dpexp.models.tempered_sigmoid import TemperedSigmoid
from dpexp.models.text_bag import TextBag
from dpexp.models.text_transformer import TextTransformer
from dpexp.models.wide_resnet import WideResNet

__all__ = [
    "MLP",
    "CifarCNN",
    "ResNet",
    "StandardizedConv2d",
    "TemperedCNN",
    "TemperedSigmoid",
    "TextBag",
    "TextTransformer",
    "WideResNet",
]
