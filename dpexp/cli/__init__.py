"""The command line. The only room that imports Hydra."""

from dpexp.cli.app import main
from dpexp.cli.composition import conf_dir

__all__ = ["conf_dir", "main"]
