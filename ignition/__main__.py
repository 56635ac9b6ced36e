"""`python -m ignition`."""

import sys

from ignition.cli import main

sys.exit(main())
