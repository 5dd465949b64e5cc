"""Tools for runs besides measuring them: play, tune, profile, track."""
