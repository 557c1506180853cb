"""Targets made to mislead: does any verdict come out wrong? ``python -m benchmarks.hostile``.

A *kind* is one public function before one sort of target: thin bumps, dead units, services
that drift, answers of another type. A *case* is a kind and a seed, and has a stable name,
``KIND/SEED``. Each ends in one of

=============  ==========================================================================
right          RECOVERED, and so it is
approximated   APPROXIMATED, and the stated error is true
honest         any other status, or a clear error
false          a claim that is not true: see :mod:`benchmarks.hostile.judge`
raw            an exception that is no ``UnreluError``, or a warning
slow           no end within the time limit; or, beside one of the above, more than four
               times the queries that the plan had named
=============  ==========================================================================

Nothing but ``unrelu``'s public surface is used, so that the same cases run on an earlier
release: ``python -m benchmarks.hostile --base TREE`` with a checkout of it.
"""
