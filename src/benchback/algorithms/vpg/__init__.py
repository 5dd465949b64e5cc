"""Vanilla policy gradient (VPG), discrete and continuous actions."""
