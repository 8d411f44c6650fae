"""The roles' system prompts, and the message that starts each turn."""

from agentgym.plugins.team.coding_team.team.routing import (
    EXECUTOR,
    GENERATOR,
    REVIEWER,
    describe,
)
from agentgym.plugins.team.coding_team.team.state import ReviewFinding, TeamState

SUPERVISOR_PROMPT = (
    "You lead a coding team. Read the facts and hand over to one role: generator "
    "writes code, reviewer checks long or risky code, executor runs tests, finish ends "
    "the work. Failed tests and serious findings go to the generator."
)
ROLE_PROMPTS = {
    GENERATOR: (
        "You write code in a small project. Read the files you need, write or edit "
        "files with your tools, then answer in one sentence. Do not change tests that "
        "you were given."
    ),
    REVIEWER: (
        "You review code. Check each changed file with your tools, report problems "
        "that they cannot see, then answer in a few words. Do not change files."
    ),
    EXECUTOR: (
        "You test code. Run the tests with your tools; write tests if there are none. "
        "Then name the failure and its cause in a few words. Do not change the code."
    ),
}
_MOST_SHOWN = 6
_MOST_EARLIER = 3


def supervisor_brief(state: TeamState) -> str:
    """Return the message that asks the supervisor to choose the next role."""
    note = f"\nNote: {state['note']}" if state.get("note") else ""
    return f"Request: {state['problem']}\n{describe(state['facts'])}{note}"


def role_brief(role: str, state: TeamState) -> str:
    """Return the message that asks a generator, reviewer or executor to work."""
    changed = ", ".join(state["facts"].get("changed", ())) or "none"
    if role == REVIEWER:
        return f"Request: {state['problem']}\nReview: {changed}"
    if role == EXECUTOR:
        tests = ", ".join(state["facts"].get("test_files", ())) or "none"
        return f"Request: {state['problem']}\nChanged: {changed}\nTests: {tests}"
    asked = [str(m.text) for m in state.get("messages", ()) if m.type == "human"]
    lines = [f"Earlier request: {text}" for text in asked[:-1][-_MOST_EARLIER:]]
    lines.append(f"Request: {state['problem']}")
    if state["files"]:
        lines.append(f"Files: {', '.join(sorted(state['files']))}")
    for failure in (state.get("tests") or {"failures": []})["failures"][:_MOST_SHOWN]:
        lines.append(f"Failed test: {failure}")
    serious = [f for f in state.get("findings", ()) if f["severity"] == "high"]
    lines += [f"Finding: {shown(finding)}" for finding in serious[:_MOST_SHOWN]]
    if state.get("note"):
        lines.append(f"Note: {state['note']}")
    return "\n".join(lines)


def shown(finding: ReviewFinding) -> str:
    """Return a finding as ``path:line: message``."""
    return f"{finding['path']}:{finding['line']}: {finding['message']}"
