"""Metric sinks: export metrics to experiment trackers.

In a campaign a tracker is fed from the record of a run after it was stored, never while a clock runs; each run has a
folder per tracker, written atomically. A training of `benchback train` is followed live (`live.py`). What a tracker
writes is a copy that can be lost without harm, and one that fails only gives a warning.
"""
