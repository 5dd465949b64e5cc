"""The studies that come with the package: data only, one `STUDY` per module."""
