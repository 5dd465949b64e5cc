"""Evolution over whole trainings: of a drift for PPO's objective, of hyper-parameters or of a schedule.

`genomes.py` says what evolves, `strategies.py` how (evosax), `fitness.py` trains a generation as one population in one
program, `search.py` is the loop with its folder, `evaluation.py` the comparison on fresh seeds and other environments,
`figures.py` and `page.py` what is drawn and written. Importing this package imports no framework.
"""
