"""What a person sees in the terminal: progress of work, and tables. Machines get JSON."""
