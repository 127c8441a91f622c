"""`python -m tuner.cli`: the same command, where the script is not on the path."""

from __future__ import annotations

import sys

from tuner.cli import main

sys.exit(main())
