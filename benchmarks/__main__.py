"""usage: python -m benchmarks [codecs] [avro] [scan] [lookup]    (all, if none is named)"""

from __future__ import annotations

import sys
from importlib import import_module

from benchmarks.report import print_conditions

BENCHMARKS = ("codecs", "avro", "scan", "lookup")


def main(names: list[str]) -> int:
    """Runs the named benchmarks in the order of `BENCHMARKS`; 2 if a name is unknown, else 0, whatever was measured."""
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        print(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    print_conditions()
    for name in BENCHMARKS:
        if not names or name in names:
            print(f"\n== {name} ==", flush=True)
            import_module(f"benchmarks.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
