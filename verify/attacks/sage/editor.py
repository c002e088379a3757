"""An editor that speaks the Agent Client Protocol with Sage, for attempts through it: keeps all that it is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import acp
from acp import helpers, schema

from lyra.agents.acp.editor_agent import EditorAgent
from lyra.agents.headless.options import HeadlessOptions
from lyra.sage.acp import SageSessions
from verify.attacks.sage.world import SageWorld

__all__ = ["AttackedEditor", "talk"]


@dataclass(slots=True)
class AttackedEditor:
    """`answer` is the option that it chooses for every question. Its files are those of the disk."""

    answer: str = "deny"
    updates: list[Any] = field(default_factory=list)
    asked: list[Any] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)

    async def session_update(self, session_id: str, update: Any, **_more: Any) -> None:  # noqa: ARG002
        self.updates.append(update)

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **_more: Any) -> Any:  # noqa: ARG002
        self.asked.append((tool_call, options))
        outcome = schema.AllowedOutcome(outcome="selected", option_id=self.answer)
        return schema.RequestPermissionResponse(outcome=outcome)

    async def read_text_file(self, session_id: str, path: str, **_more: Any) -> Any:  # noqa: ARG002
        self.read.append(path)
        return schema.ReadTextFileResponse(content="what the editor has\n")

    async def write_text_file(self, session_id: str, path: str, content: str, **_more: Any) -> Any:  # noqa: ARG002
        self.written.append(path)
        return schema.WriteTextFileResponse()

    @property
    def told(self) -> str:
        """All that it was told, as text."""
        models = [*self.updates, *(part for call, options in self.asked for part in (call, *options))]
        return "\n".join([*(model.model_dump_json() for model in models), *self.errors])

    def texts(self) -> list[str]:
        """The texts for a person's eyes: all but the input of calls, which is data."""
        texts: list[str] = []

        def walk(value: Any, name: str = "") -> None:
            if isinstance(value, str):
                texts.append(value)
            elif isinstance(value, dict):
                for key, inner in value.items():
                    if key not in ("raw_input", "rawInput", "old_text", "new_text", "path"):
                        walk(inner, key)
            elif isinstance(value, list):
                for inner in value:
                    walk(inner, name)

        for update in self.updates:
            walk(update.model_dump())
        for call, options in self.asked:
            walk(call.model_dump())
            for option in options:
                walk(option.model_dump())
        return [*texts, *self.errors]


async def talk(
    world: SageWorld, model: str, prompts: Sequence[str], *, editor: AttackedEditor | None = None, **options: Any
) -> AttackedEditor:
    """Open a session in the world's folder and put prompts to it, one after the other."""
    editor = editor or AttackedEditor()
    agent = EditorAgent(SageSessions(HeadlessOptions(model=model, folder=str(world.folder), **options)))
    agent.on_connect(editor)
    files = schema.FileSystemCapabilities(read_text_file=True, write_text_file=True)
    await agent.initialize(acp.PROTOCOL_VERSION, schema.ClientCapabilities(fs=files))
    try:
        session = await agent.new_session(cwd=str(world.folder))
        for prompt in prompts:
            try:
                await agent.prompt(session.session_id, [helpers.text_block(prompt)])
            except acp.RequestError as error:
                editor.errors.append(f"{error} {error.data}")
    finally:
        await agent.close()
    return editor
