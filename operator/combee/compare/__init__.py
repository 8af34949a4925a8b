"""``combee compare``: strategies x sizes x seeds x tasks on equal terms, as one table and one plot.

strategies.py  what ``--strategies`` says
cells.py       one derived manifest and one folder for each (task, strategy, seed)
launch.py      runs the cells as ``combee run`` would, side by side; a finished one is left alone
gate.py        scores by example of the gate half, of the start too where nothing better was found
collect.py     what a finished cell says: scores, calls replayed into modelled time, counts
table.py       paired differences, speed-ups, the forms of compare.json
page.py        compare.md, compare.html and the plot
paper.py       the paper's published points, to stand beside ours
"""
