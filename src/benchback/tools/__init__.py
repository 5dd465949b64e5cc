"""What a person does with runs besides measuring them: play, tune, profile, track."""
