"""Hyper-parameter search: a space of runs, several seeds for each of its points, the best of them.

`space.py` defines the space and its points. By populations, `programs.py` groups points that can share a program,
`searching.py` trains them (all to the end, halving, population-based training), `trials.py` asks Optuna for points, and
`confirm.py` compares the best with the defaults on fresh seeds. Through the harness, `search.py` makes a study whose
cells are the points and whose blocks are the seeds: fresh processes in a drawn order, every sample stored. `result.py`
ranks, `responses.py` draws, `page.py` writes. Importing this imports no framework.
"""
