"""Components: the execution mechanisms that a recipe composes.

A component is a module or function with one contract on every device; it picks the prepared operator. It never knows a
model, and allocates nothing while it runs.
"""
