"""How each agent is run without a terminal: its program, its settings, its commands.

An agent gets a home of its own and none of this process's environment, so that it finds no account and no settings.
"""

import json
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from scripts.agents import folder

MODEL = "scripted"
TIMEOUT_S = 240


class Agent(ABC):
    """An agent that works in a folder. `tool` is its tool for commands, which takes `arguments`."""

    program: str
    tool: str

    def __init__(self, url: str, place: Path) -> None:
        self.url = url
        self.home, self.work = place / "home", place / "work"
        for directory in (self.home, self.work):
            directory.mkdir()
        for name, content in self.settings().items():
            (self.home / name).parent.mkdir(parents=True, exist_ok=True)
            (self.home / name).write_text(content)

    @classmethod
    def path(cls) -> Path:
        """The program, which is there if the agent is installed."""
        return folder() / "node_modules" / cls.program

    @staticmethod
    @abstractmethod
    def arguments(command: str) -> dict[str, str]:
        """Arguments of the tool that run a shell command."""

    def ask(self, prompt: str, *, again: bool = False) -> subprocess.CompletedProcess[str]:
        """Runs the agent to its end, in a session of its own or in the last one `again`."""
        environment = {
            "HOME": str(self.home),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "TERM": "dumb",
        }
        # Some agents ignore a request to end.
        command = ["timeout", "--kill-after=5", str(TIMEOUT_S), self.path(), *self.command(prompt, again=again)]
        return subprocess.run(
            command,
            cwd=self.work,
            env={**environment, **self.environment()},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )

    @abstractmethod
    def command(self, prompt: str, *, again: bool) -> list[str]:
        """The command line behind the program."""

    def environment(self) -> Mapping[str, str]:
        """Variables of its own."""
        return {}

    def settings(self) -> Mapping[str, str]:
        """What it reads from its home: contents of files."""
        return {}


class ClaudeCode(Agent):
    """Speaks the messages API."""

    program = "@anthropic-ai/claude-code-linux-x64/claude"
    tool = "Bash"

    @staticmethod
    def arguments(command: str) -> dict[str, str]:
        return {"command": command, "description": "Write a file"}

    def command(self, prompt: str, *, again: bool) -> list[str]:
        return [*(["--continue"] if again else []), "-p", prompt, "--allowedTools", self.tool, "--model", MODEL]

    def environment(self) -> Mapping[str, str]:
        return {
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_AUTH_TOKEN": "unused",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }


class Codex(Agent):
    """Speaks the responses API."""

    program = "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"
    tool = "exec_command"

    @staticmethod
    def arguments(command: str) -> dict[str, str]:
        return {"cmd": command}

    def command(self, prompt: str, *, again: bool) -> list[str]:
        # There is no sandbox to make inside that of a build machine.
        options = ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        return [*options, *(["resume", "--last"] if again else []), prompt]

    def settings(self) -> Mapping[str, str]:
        provider = f'name = "Flare"\nbase_url = "{self.url}/v1"\nwire_api = "responses"\n'
        chosen = f'model = "{MODEL}"\nmodel_provider = "flare"\nanalytics.enabled = false\n'
        return {".codex/config.toml": f"{chosen}\n[model_providers.flare]\n{provider}"}


class OpenCode(Agent):
    """Speaks chat completions."""

    program = "opencode-linux-x64/bin/opencode"
    tool = "bash"

    @staticmethod
    def arguments(command: str) -> dict[str, str]:
        return {"command": command, "description": "Write a file"}

    def command(self, prompt: str, *, again: bool) -> list[str]:
        return ["run", *(["--continue"] if again else []), prompt]

    def environment(self) -> Mapping[str, str]:
        return {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}

    def settings(self) -> Mapping[str, str]:
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "Flare",
            "options": {"baseURL": f"{self.url}/v1", "apiKey": "unused"},
            "models": {MODEL: {"name": MODEL, "reasoning": True, "tool_call": True}},
        }
        chosen = {"model": f"flare/{MODEL}", "share": "disabled", "provider": {"flare": provider}}
        return {".config/opencode/opencode.json": json.dumps(chosen)}


AGENTS = (ClaudeCode, Codex, OpenCode)
