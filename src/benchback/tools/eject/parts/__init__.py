"""The parts of an ejected file that have no counterpart in this package: loop, command line, checkpoint.

They are ordinary modules, linked like any other. What they import stands for the choice of the one who ejects: `eject`
names the algorithm, the environment and the mode that are used in its place.
"""
