"""``combee compare``: strategies x sizes x seeds x tasks on equal terms, as one table and one plot.

strategies.py  the values of ``--strategies``
cells.py       one derived manifest and one folder for each (task, strategy, seed)
launch.py      runs the cells as ``combee run`` would, side by side, and skips finished ones
gate.py        scores by example on the gate half, of the start too where nothing better was found
collect.py     the facts of a finished cell: scores, counts, calls re-timed into modelled time
table.py       paired differences, speed-ups, the form of compare.json
page.py        compare.md and compare.html
paper.py       the paper's published points, which the pages show beside ours
"""
