"""One folder per algorithm, one file per backend, all of the same shape."""
