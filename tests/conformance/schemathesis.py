"""Schemathesis, from PyPI, on docs/openapi.json against `flare`: no 5xx, and every response as the document says.

python -m tests.conformance.schemathesis --core DIR --into DIR
"""

import os
import subprocess
import sys

from scripts.smollm2 import ROOT
from tests.conformance.harness import environment, options, read_junit, report, version

_EXAMPLES = os.environ.get("FLARE_SCHEMATHESIS_EXAMPLES", "200")
_CHECKS = "not_a_server_error,response_schema_conformance,content_type_conformance,response_headers_conformance"
_TIMEOUT_S = 3600


def main() -> int:
    """Runs the suite."""
    where = options(__doc__)
    bin_folder = environment(where.into, "schemathesis")
    results = where.into / "results.xml"
    results.unlink(missing_ok=True)
    # With more workers, CPython 3.11's parser mixes up the depths of threads that parse at one time and gives up.
    command = [bin_folder / "st", "run", ROOT / "docs" / "openapi.json", "--checks", _CHECKS, "--workers", "1"]
    command += ["--max-examples", _EXAMPLES, "--phases", "examples,coverage,fuzzing", "--seed", "1"]
    # Generated requests ask for as many tokens as the context holds; what matters here is said after a few seconds.
    command += ["--request-timeout", "60", "--report", "junit", "--report-junit-path", results, "--continue-on-failure"]
    with where.serve() as server, (where.into / "schemathesis.log").open("w") as log:
        subprocess.run([*command, "--url", server.url], cwd=where.into, stdout=log, stderr=log, timeout=_TIMEOUT_S)
    return report(f"schemathesis {version(bin_folder, 'schemathesis')}", read_junit(results), ())


if __name__ == "__main__":
    sys.exit(main())
