"""Many agents in one program: members of a population differ in their seeds and float hyper-parameters.

`members.py` makes a population of an agent, `groups.py` chooses how many members run side by side; `spec.py` says who
the members are, `training.py` trains them, `folder.py` is what they leave on disk. Members of PyTorch are put together
by `stacked.py` and trained by `in_turn.py`. `halving.py` drops members that lose, `evolution.py` lets them take over
from one another, `devices.py` divides them over devices. Importing this package imports no framework.
"""
