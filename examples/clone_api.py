"""Clone a model behind an HTTP address.

The server stands for somebody else's: it speaks the KServe v2 protocol and answers with
probabilities. Only its address is used below. Needs the extra `http`.
"""

import threading

import unrelu
from unrelu.oracles import Softmax, as_oracle
from unrelu.serving import ModelServer

secret = unrelu.planted.random_network(8, 5, 3, rng=7)
server = ModelServer(Softmax(as_oracle(secret)))
threading.Thread(target=server.serve_forever, daemon=True).start()

oracle = unrelu.connect(server.url, budget=20_000, price=0.0001)
print(unrelu.plan_extraction(oracle, rng=0).sentence())
result = unrelu.extract(oracle, rng=0)
print(result.status.name, "after", result.queries.round_trips, "requests")
print(f"{result.queries.total} rows would have cost {0.0001 * result.queries.total:.2f}")
print(unrelu.compare(result.network, secret, common_function=True))

server.shutdown()
server.server_close()
