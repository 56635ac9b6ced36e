"""The host device: Inductor's C++ kernels and our operators in one module, programs as lists of calls."""
