"""The locked environment: what is installed does not depend on the order in which packages were unpacked."""

from collections import defaultdict
from importlib import metadata


def test_no_code_belongs_to_two_packages():
    owners = defaultdict(set)
    for distribution in metadata.distributions():
        name = distribution.name
        for file in distribution.files or []:
            if file.suffix in {".py", ".so"}:
                owners[file].add(name)
    assert len(owners) > 1000
    assert {file: names for file, names in owners.items() if len(names) > 1} == {}
