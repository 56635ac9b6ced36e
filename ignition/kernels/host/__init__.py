"""Host operators: C++20 sources, how they are built for a CPU, and how Python calls and records their entries.

operators.h is the list of entries and what each promises. Nothing here knows a model.
"""
