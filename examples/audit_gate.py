"""Audit a model of your own before it is released, and keep the report.

The facts are plain values: a release pipeline can decide by them. Needs the extra `report`.
"""

from pathlib import Path

import unrelu
from unrelu.report import audit, render_page

model = unrelu.planted.random_network(10, 4, 2, rng=2)  # stands for your model
facts = audit(unrelu.connect(model, price=0.001), rng=0, rate=50.0)

Path("report.html").write_text(render_page(facts))
Path("audit.json").write_text(facts.to_json())
print(facts.headline)
print(f"{facts.attack_queries} queries, {facts.cost:.2f} at the price given")
print(f"{facts.duration_at_rate:.0f} seconds at the rate limit")
print("risk:", facts.risk.level)
for number, action in enumerate(facts.actions, start=1):
    print(f"{number}. {action}")
print("gate:", "closed" if facts.recovered else "open")
