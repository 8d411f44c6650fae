"""Drafts: what was said before, and what the prompt says."""

from agentgym.engines.local.decoding.sampling import Drafter, runs_of

PROMPT = list(range(100, 120))
ANSWER = [1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_a_response_that_was_seen_is_drafted_up_to_the_limit() -> None:
    drafter = Drafter()
    drafter.learn(PROMPT, ANSWER)
    assert drafter.draft(PROMPT, [], {}, 4) == [1, 2, 3, 4]
    assert drafter.draft(PROMPT, ANSWER[:3], {}, 100) == ANSWER[3:]
    assert drafter.draft(PROMPT, ANSWER, {}, 4) == []
    assert drafter.draft(PROMPT, [], {}, 0) == []
    assert drafter.draft(PROMPT, [], {}, -1) == []


def test_the_longest_run_decides_and_the_newest_response() -> None:
    drafter = Drafter()
    drafter.learn([1, 2, 3, 4, 11, 12, 13, 14], [50])
    drafter.learn([5, 6, 7, 8, 11, 12, 13, 14], [60])
    assert drafter.draft([1, 2, 3, 4, 11, 12, 13, 14], [], {}, 1) == [50]
    assert drafter.draft([0, 0, 0, 0, 11, 12, 13, 14], [], {}, 1) == [60]
    drafter.learn([1, 2, 3, 4, 11, 12, 13, 14], [70])
    assert drafter.draft([1, 2, 3, 4, 11, 12, 13, 14], [], {}, 1) == [70]


def test_what_nobody_said_is_copied_from_the_prompt() -> None:
    prompt = [*PROMPT, 1, 2, 3, 4, 5]
    own = runs_of(prompt)
    assert Drafter().draft(prompt, [9, 102, 103, 104], own, 3) == [105, 106, 107]
    assert Drafter().draft(prompt, [102, 104, 103], own, 3) == []
    assert runs_of([1, 2, 3]) == {}
