"""What TD3 is tried on (`cases`), what it must compute (`oracle`), and the five levels that compare (`levels`)."""
