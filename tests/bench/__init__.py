"""Speed, as ratios to code written by hand: `python -m tests.bench`.

Each row runs two things that do the same observable work: the limit, which is written by hand for exactly this case,
and bub. They take turns in one process (limit, bub, bub, limit, ...), and the row's ratio is the median of the ratios
of all rounds. So whatever slows the machine down for a moment hits both, and a ratio means the same on every machine.

The driver is `timing.py`, some sixty lines, and no benchmark library. pytest-benchmark finishes one benchmark before it
starts the next, and pyperf runs each one in processes of its own; with either, two figures that are divided by each
other were taken at different times. Both also need to be there where the peer is measured (`peer.py`), where only the
standard library can be taken for granted.
"""
