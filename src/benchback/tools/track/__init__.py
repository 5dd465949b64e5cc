"""Metric sinks: export the metrics of a finished run to experiment trackers.

A tracker is fed from the record of a run after it was stored, never while a clock runs. Its output is a copy
that can be lost without harm, and a tracker that fails only gives a warning. Each run has a folder per tracker, written
atomically.
"""
