"""Metric sinks: what a finished run measured, for the tools people look at curves with.

A tracker is fed from the record of a run after it was stored, never while a clock runs. What it makes of it is a copy:
losing it loses nothing, and a tracker that fails costs a warning. Each run has a folder of its own per tracker,
complete or not there at all.
"""
