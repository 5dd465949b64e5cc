"""One folder per algorithm, one file per backend, all with the same layout."""
