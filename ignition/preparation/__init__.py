"""Preparation: from a loaded model to recorded programs in fixed storage.

Owns the order of the steps, every byte at a fixed address, and the report. It knows a model only as a `PreparedModel`.
"""
