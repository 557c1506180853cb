"""How pictures of executed pages look: SVG, with letters that a phone can show."""

c = get_config()  # noqa: F821
c.InlineBackend.figure_formats = {"svg"}
c.InlineBackend.rc = {
    "figure.figsize": (5.6, 3.3),
    "figure.facecolor": "white",
    "font.size": 12.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "savefig.bbox": "tight",
    "svg.hashsalt": "unrelu",
}
c.Application.log_level = "ERROR"
c.HistoryManager.enabled = False
