"""Sphinx configuration.

Pages whose head says ``file_format: mystnb`` are executed at every build; a cell that raises ends
the build. Nothing here needs the network: the names of other projects that signatures link to
stand in ``inventories.toml``.
"""

import logging
import os
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small problems: threads only wait
os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")  # the kernel's debugger is not used

PROFILE = HERE / "_build" / "ipython" / "profile_default"  # how pictures look
PROFILE.mkdir(parents=True, exist_ok=True)
shutil.copy(HERE / "_ext" / "kernel_config.py", PROFILE / "ipython_kernel_config.py")
os.environ["IPYTHONDIR"] = str(PROFILE.parent)
logging.getLogger("traitlets").setLevel(logging.WARNING)

import inventories  # noqa: E402

from unrelu import __version__  # noqa: E402

project = "unrelu"
author = "The unrelu developers"
copyright = "The unrelu developers"
release = __version__
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "commands",
    "decisions",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_ext", "_templates"]

# ------------------------------------------------------------------ executed pages
nb_execution_mode = "force"  # a cache would not see that the library changed
nb_execution_raise_on_error = True
nb_execution_timeout = 300  # seconds a cell, for a busy machine; pages take under a minute
nb_execution_in_temp = True
nb_merge_streams = True

# ----------------------------------------------------------------------- reference
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
autosummary_generate = True
autosummary_imported_members = True
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_type_aliases = {
    name: name
    for name in (
        "AnswerKind",
        "Area",
        "ArrayLike",
        "BoolArray",
        "ExactArray",
        "FloatArray",
        "IntArray",
        "RandomState",
    )
}
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
napoleon_google_docstring = False
viewcode_line_numbers = True
intersphinx_mapping = inventories.written(HERE / "inventories.toml", HERE / "_build")

# ---------------------------------------------------------------------------- look
html_theme = "furo"
html_title = "unrelu"
pygments_dark_style = "monokai"
html_static_path = ["_static"]
html_css_files = ["unrelu.css"]
