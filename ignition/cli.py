"""The `ignition` command: prepare a core, look into one, verify one.

Results go to stdout, progress and errors to stderr. An error that a person can act on is one line and an exit code: 2
for bad input, 1 for a preparation that failed. A traceback appears with --verbose only.
"""

import argparse
import logging
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from ignition.errors import PreparationError
from ignition.progress import Display


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    options = parser().parse_args(arguments)
    quiet_libraries(verbose=options.verbose)
    try:
        code: int = options.run(options)
    except PreparationError as error:
        if options.verbose:
            raise
        print(f"ignition: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("ignition: interrupted; nothing was written", file=sys.stderr)
        return 130
    except Exception as error:
        if options.verbose:
            raise
        summary = (str(error).strip().splitlines() or [""])[0]
        print(
            f"ignition: an unexpected {type(error).__name__}: {summary} (run again with --verbose for the traceback)",
            file=sys.stderr,
        )
        return 1
    return code


def parser() -> argparse.ArgumentParser:
    """The command line."""
    root = argparse.ArgumentParser(
        prog="ignition", description="Prepare a model into a runtime core that flare serves."
    )
    commands = root.add_subparsers(required=True, metavar="COMMAND")

    prepare = commands.add_parser("prepare", help="make a core of a checkpoint")
    prepare.add_argument("model", metavar="MODEL", help="a folder, a .gguf file, or a Hugging Face id (owner/name)")
    prepare.add_argument("-o", "--output", type=Path, required=True, metavar="CORE", help="folder of the core")
    prepare.add_argument(
        "--device", choices=("host", "cuda"), help="where the core runs (default: cuda if one is there)"
    )
    prepare.add_argument(
        "--max-concurrency", type=int, default=4, metavar="N", help="requests at one time (default: 4)"
    )
    prepare.add_argument("--context", type=int, metavar="N", help="tokens of one request (default: the model's)")
    prepare.add_argument(
        "--prefill-chunk-size", type=int, metavar="N", help="a multiple of 64 (default: 512 on the host, 4096 on CUDA)"
    )
    prepare.set_defaults(run=run_prepare)

    inspect = commands.add_parser("inspect", help="print what is in a core")
    inspect.set_defaults(run=run_inspect)
    verify = commands.add_parser("verify", help="check a core's digests and replay its programs")
    verify.set_defaults(run=run_verify)
    for command in (inspect, verify):
        command.add_argument("core", type=Path, metavar="CORE", help="folder of the core")
    for command in (prepare, inspect, verify):
        command.add_argument("--verbose", action="store_true", help="details, library messages and tracebacks")
    return root


def run_prepare(options: argparse.Namespace) -> int:
    """`ignition prepare`."""
    # Imported here, so that `--help`, `inspect` and bad input need not wait for torch.
    from ignition.bootstrap import choose_device, prepare
    from ignition.preparation.model import PreparationOptions

    prepare(
        options.model,
        options.output,
        device=choose_device(options.device),
        options=PreparationOptions(
            requests_max=options.max_concurrency,
            context_tokens_max=options.context,
            prefill_tokens_max=options.prefill_chunk_size,
        ),
        display=Display(),
    )
    print(f"{options.output} is ready: flare run {options.output}")
    return 0


def run_inspect(options: argparse.Namespace) -> int:
    """`ignition inspect`."""
    from ignition.inspection import describe, read_core

    for line in describe(read_core(options.core)):
        print(line)
    return 0


def run_verify(options: argparse.Namespace) -> int:
    """`ignition verify`."""
    from ignition.export.verify import verify_core

    launches = verify_core(options.core)
    print(f"{options.core} is sound: its storage has the stated digest, and {launches} launches gave the recorded bits")
    return 0


def quiet_libraries(*, verbose: bool) -> None:
    """Keep libraries' own bars and warnings off the screen unless they are asked for."""
    if verbose:
        logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
        return
    warnings.simplefilter("ignore")
    for variable in ("TRANSFORMERS_VERBOSITY", "HF_HUB_VERBOSITY"):
        os.environ.setdefault(variable, "error")


if __name__ == "__main__":
    sys.exit(main())
