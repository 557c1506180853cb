"""An extraction over HTTP in a process of its own: http_worker.py URL LEDGER.

The server is told which life this is (``model_servers.py``) where LIFE says so.
"""

from __future__ import annotations

import json
import os
import sys

from unrelu import connect
from unrelu.extraction.two_layer import extract_two_layer
from unrelu.oracles import HTTPOptions


def main(url: str, ledger: str) -> None:
    life = {"X-Life": "LIFE"} if "LIFE" in os.environ else {}
    options = HTTPOptions(protocol="v2", timeout=900.0, concurrency=4, header_variables=life)
    oracle = connect(url, ledger=ledger, batch_size=16, name="target", http=options)
    result = extract_two_layer(oracle, rng=3)
    facts = {
        "status": result.status.name,
        "bits": result.network.fingerprint(),
        "certificate": str(result.certificate),
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main(*sys.argv[1:])
