"""Scenarios as data, and the player that brings them to life on the real clock."""
