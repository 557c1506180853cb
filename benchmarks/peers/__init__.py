"""unrelu beside its peers: same targets, same counter, one judge.

The target of every run lives in a process of its own (:mod:`.target`), which
counts each row it answers; the solver, ours or a peer's, is a third process in
the peer's own virtual environment (:mod:`.environments`) that sees a socket and
nothing else; :mod:`.judge` holds the truth and is the only one that says how
close the recovered function is. ``python -m benchmarks.peers --help``.
"""
