"""Pages of the site that are made from the sources: side-by-side code, references, walkthroughs."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The repository."""
