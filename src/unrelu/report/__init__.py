"""The audit: what an attacker could recover, at what price, and which defence helps."""

from unrelu.report.audit import Audit, Defence, audit
from unrelu.report.page import render_page

__all__ = ["Audit", "Defence", "audit", "render_page"]
