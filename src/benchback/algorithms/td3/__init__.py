"""Twin delayed deep deterministic policy gradient, real-valued actions."""
