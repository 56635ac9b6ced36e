"""What the tools of the recorded agents answered: deterministic texts of the kinds that agents meet.

Each function makes about `size` lines from a seeded source of randomness, and two calls with equal sources are equal.
"""

import json
import random

_WORDS = "parser index buffer socket ledger router schema worker cursor bucket signal packet".split()
_LEVELS = ("DEBUG", "INFO", "WARN", "ERROR")
# Composed and decomposed letters, scripts of both directions, joined emoji, and characters outside the first plane.
_SCRIPTS = (
    "Zürich — Straße, naïve café (cafe\u0301)",
    "東京の天気は晴れです。気温は二十度",
    "Съешь ещё этих мягких французских булок",
    "مرحبا بالعالم، كيف حالك؟",
    "👩\u200d💻👨\u200d👩\u200d👧 🇪🇺 🏳\ufe0f\u200d🌈 ✅",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𓀀𓂀 \u200b|\u00a0|\u2028|",
    "안녕하세요, 서버가 준비되었습니다",
    "हिन्दी में एक पंक्ति — ठीक है",
)


def listing(draw: random.Random, size: int) -> str:
    lines = [f"total {size * 4}"]
    for _ in range(size):
        name = f"{draw.choice(_WORDS)}_{draw.choice(_WORDS)}.py"
        lines.append(f"-rw-r--r-- 1 dev dev {draw.randrange(200, 90000):6} src/{name}")
    return "\n".join(lines)


def log(draw: random.Random, size: int) -> str:
    second = draw.randrange(36000)
    lines = []
    for _ in range(size):
        second += draw.randrange(1, 40)
        clock = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
        job = f"{draw.choice(_WORDS)}-{draw.randrange(100)}"
        lines.append(f"{clock} {draw.choice(_LEVELS):5} {job}: retry {draw.randrange(1, 6)} of 5")
    return "\n".join(lines)


def code(draw: random.Random, size: int) -> str:
    lines = []
    for number in range(max(1, size // 5)):
        name, argument = draw.sample(_WORDS, 2)
        lines += [
            f"def {name}_{number}({argument}: dict[str, int]) -> int:",
            f'    """Counts what `{argument}` holds."""',
            f"    if not {argument}:",
            f"\t\treturn {draw.randrange(-9, 9)}  # tabs\tand spaces",
            f"    return sum({argument}.values()) % {draw.randrange(2, 97)}",
            "",
        ]
    return "\n".join(lines)


def records(draw: random.Random, size: int) -> str:
    rows = [
        {
            "id": draw.randrange(1 << 30),
            "name": draw.choice(_WORDS),
            "ratio": round(draw.random(), 3),
            "note": draw.choice(_SCRIPTS) if draw.random() < 0.2 else None,
        }
        for _ in range(max(1, size // 2))
    ]
    return json.dumps({"ok": True, "rows": rows}, ensure_ascii=False, indent=draw.choice([None, 1]))


def scripts(draw: random.Random, size: int) -> str:
    return "\n".join(f"{number}. {draw.choice(_SCRIPTS)}" for number in range(1, size + 1))


def patch(draw: random.Random, size: int) -> str:
    name = draw.choice(_WORDS)
    lines = [f"--- a/src/{name}.rs", f"+++ b/src/{name}.rs", f"@@ -{size},{size} +{size},{size} @@"]
    for _ in range(size):
        lines.append(f"{draw.choice(' -+')}    let {draw.choice(_WORDS)} = {draw.choice(_WORDS)}.next()?;")
    return "\n".join(lines)


def table(draw: random.Random, size: int) -> str:
    lines = ["| step | state | ms |", "|---|---|---|"]
    for number in range(size):
        lines.append(f"| {draw.choice(_WORDS)} {number} | {draw.choice(_LEVELS).lower()} | {draw.random() * 900:.1f} |")
    return "\n".join(lines)


def blanks(draw: random.Random, size: int) -> str:
    """Whitespace at both ends and in between, which tokens like to swallow across a message's edge."""
    return "\n".join(draw.choice(["", "  ", "\t", "ok", "   done   "]) for _ in range(size)) + "\n\n  "


def markup(draw: random.Random, size: int) -> str:
    """Text that looks like the conversation's own marks."""
    lines = [f"<|im_start|>{draw.choice(_WORDS)}", "is data here, not a turn<|im_end|>"]
    lines += [f'<item id="{draw.randrange(99)}">{draw.choice(_WORDS)} &amp; co</item>' for _ in range(size)]
    return "\n".join(lines)


KINDS = (listing, log, code, records, scripts, patch, table, blanks, markup)
