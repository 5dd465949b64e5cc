"""Searching for hyper-parameters: a space of runs, several seeds for each of its points, the best of them.

A tuning is a study whose cells are the points and whose blocks are the seeds, so it runs as every campaign does: fresh
processes in a drawn order, every sample stored, stopped and continued at will. `space.py` says what is tried,
`search.py` makes the study of it, `result.py` reads what came of it. Importing this imports no framework.
"""
