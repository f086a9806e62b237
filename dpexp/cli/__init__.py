"""The command line. The only room that imports Hydra."""

from dpexp.cli.app import conf_dir, main

__all__ = ["conf_dir", "main"]
