"""The CUDA device: our Triton operators and Inductor's kernels, programs as captured graphs.

Everything that a graph touches lies in arenas at fixed addresses; its kernels' modules come from the driver's own load
calls. Nothing here runs while a core serves.
"""
