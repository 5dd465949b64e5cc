"""Many agents in one program: members of a population differ in their seeds and float hyper-parameters.

`members.py` makes a population of an agent, `groups.py` chooses how many members run side by side; `spec.py` says who
the members are, `training.py` trains them, `folder.py` is what they leave on disk. Running members on several devices
and letting them evolve are not here yet. Importing this package imports no framework.
"""
