"""Sphinx configuration: `pip install -e ".[docs]" && sphinx-build -W docs docs/_build`."""

project = "dpexp"
author = "The dpexp developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "dpexp"
autodoc_typehints = "description"
