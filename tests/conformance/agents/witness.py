"""The play of the agents' turns: the model has a shell write a file, and believes it once it sees the output."""

from tests.conformance.agents.headless import AGENTS
from tests.conformance.scripted.play import Play, Script

WITNESS = "witness.txt"
EVIDENCE = "42 was here"
COMMAND = f"echo $((6 * 7)) was here | tee {WITNESS}"
"""Only the shell knows the sum, so that the evidence comes from nowhere else."""

PLAY = Play(
    calls={
        agent.tool: Script(
            text="I will write it – at once.",
            thought="The shell can do that.",
            calls=((agent.tool, agent.arguments(COMMAND)),),
        )
        for agent in AGENTS
    },
    evidence=EVIDENCE,
    answer=Script("It is written: fünf Wörter und ☀️."),
)
