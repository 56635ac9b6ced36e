"""The stub describes the extension that was built."""

import subprocess
import sys


def test_the_stub_agrees_with_the_module(tmp_path):
    # Python 3.11 has no __buffer__ at run time, and the compiled module lies one level down in its package.
    exceptions = tmp_path / "exceptions"
    exceptions.write_text("flare_heliopause.Arena.__buffer__\nflare_heliopause.flare_heliopause\n")
    command = [sys.executable, "-m", "mypy.stubtest", "flare_heliopause", "--allowlist", exceptions, "--concise"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
