"""Hyper-parameter search: a space of runs, several seeds for each of its points, the best of them.

A tuning is a study whose cells are the points and whose blocks are the seeds, so it runs as every campaign does: fresh
processes in a drawn order, every sample stored, stopped and continued at will. `space.py` defines the
space, `search.py` makes a study of it, `result.py` reads its results. Importing this imports no framework.
"""
