"""Ignition prepares a model checkpoint into a runtime core: load, tune, compile, capture, export."""
