"""Reads what the instrument stored and says what follows from it. Imports no framework and measures nothing."""
