"""Where dpexp's own files are."""

from pathlib import Path

__all__ = ["conf_dir"]


def conf_dir() -> Path:
    """The configuration folder: inside the installed package, or beside it in a checkout."""
    packaged = Path(__file__).parent / "conf"
    return packaged if packaged.is_dir() else Path(__file__).parents[1] / "conf"
