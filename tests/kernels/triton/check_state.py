"""What launches begin with, commit and maintain: the host's own tests, run on the kernels."""

from test_state import *  # noqa: F403
