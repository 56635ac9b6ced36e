"""Kernels that Flare owns, one folder a language or device."""
