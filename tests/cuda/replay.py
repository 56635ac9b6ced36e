"""Loads a core without torch and runs a program on the inputs of a folder: `replay.py CORE PROGRAM INPUTS`.

INPUTS holds `N.in`, bytes for the io region at `sys.argv[4]`, and `N.masks`, bytes of the grammar masks, which follow
once the program has begun; where there are none, it is launched whole. Each is answered by `N.out`, the bytes of the io
region that `sys.argv[5:]` name as pairs of offset and length.
"""

import sys
from pathlib import Path

from flare_heliopause import Core


def main(core: Path, program: str, inputs: Path, offset: int, spans: list[tuple[int, int]]) -> None:
    """Runs every input."""
    loaded = Core(core)
    for path in sorted(inputs.glob("*.in")):
        loaded.write_region("io", offset, path.read_bytes())
        if masks := path.with_suffix(".masks").read_bytes():
            assert loaded.launch_early(program, masks), "the program was not begun early"
        else:
            loaded.launch(program)
        path.with_suffix(".out").write_bytes(b"".join(loaded.read_region("io", *span) for span in spans))
    assert "torch" not in sys.modules


if __name__ == "__main__":
    numbers = [int(number) for number in sys.argv[4:]]
    pairs = list(zip(numbers[1::2], numbers[2::2], strict=True))
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), numbers[0], pairs)
