"""What follows from a store: one reader, metrics of runs, claims. Imports no framework."""
