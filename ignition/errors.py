"""Every failure that a person who prepares a model can act on, as a typed error.

A message says what was wrong, where, and what to do. `exit_code` is what the command line returns: 2 when the input
was at fault, 1 when the preparation itself failed. Broken invariants are assertions, never one of these.
"""


class PreparationError(ValueError):
    """The preparation could not finish."""

    exit_code = 1


class CheckpointError(PreparationError):
    """The checkpoint is missing, unreadable, incomplete or not what its description says."""

    exit_code = 2


class UnsupportedModelError(PreparationError):
    """The checkpoint is sound, but its architecture or configuration is not one that a recipe prepares."""

    exit_code = 2


class UsageError(PreparationError):
    """The options contradict each other, the model or the machine."""

    exit_code = 2
