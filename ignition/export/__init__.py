"""Export: the core file, and the proof that a fresh process computes from it what preparation computed.

Owns the contract's construction, the file's bytes and their digest, and replay verification. A core appears under its
name whole or not at all.
"""
