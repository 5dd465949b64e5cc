"""PPO with a recurrent network: one file per backend, as beside this folder; `sequences.py` is shared."""
