"""The CUDA operators, in Triton: equal in meaning to the host's, whose contract is `kernels/host/operators.h`.

A function here takes the arguments of its host entry in the same order, as tensors and numbers. It may run inside a
capture: it allocates from torch alone, never waits for the device, and what a launch does follows from device memory,
so a captured launch serves every later step. Weights are plain row-major BF16 [out, in].
"""
