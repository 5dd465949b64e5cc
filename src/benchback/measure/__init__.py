"""The instrument: runs a study in isolated processes, in an order that drift cannot bias, and keeps every sample."""
