"""Sphinx configuration."""

from unrelu import __version__

project = "unrelu"
author = "The unrelu developers"
copyright = "The unrelu developers"
release = __version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = False
html_theme = "furo"
html_title = "unrelu"
exclude_patterns = ["_build"]
