"""Requests to repair a fault that makes tests fail."""

from agentgym.scenarios.coding.wording.grammar import Phrases

REPAIR = Phrases(
    train=(
        (
            "[the tests|some tests] of {package} fail: [find|look for] the [fault|bug] "
            "and [fix|repair] it"
        ),
        (
            "[the tests|some tests] fail: [find|look for] the [fault|bug] in {package} "
            "and [fix|repair] it"
        ),
        "{test} fails: [find|look for] the [fault|bug] and [fix|repair] it",
        "{test} fails: [fix|repair] the [code|function]",
        "[find|look for] the [fault|bug] that makes {test} fail and [fix|repair] it",
        "[find and fix|find and repair] the [fault|bug] in {package}",
        (
            "[fix|repair] [the code of {package}|{package}] so that "
            "[all tests|the tests] pass"
        ),
        "make [all tests|the tests] of {package} pass again",
        "make {test} pass again",
        "[fix|repair] the [fault|bug] in {package}; [the tests|some tests] show it",
        "there is a [fault|bug] in {package}: [fix|repair|find and fix] it",
        "{test} does not pass: [fix|repair] the [fault|bug]",
        (
            "a test of {package} [fails|does not pass]: "
            "[fix|repair|find and repair] the [fault|bug]"
        ),
        "the tests of {package} do not pass: find the [fault|bug] and fix it",
        "{test} must [pass|not fail]: [fix|repair] {package}",
        "see that {test} passes again: [fix|repair] the code",
    ),
    validation=(
        "find the bug in {package} that makes some tests fail and repair it",
        "repair the function so that {test} passes again",
        "fix the code so that {test} does not fail",
        "some tests of {package} do not pass: fix the code",
        "a test of {package} fails: find the fault and fix the code",
        "look for the bug in {package} and repair the function",
        "fix {package}: {test} fails",
        "there is a fault in the code of {package}: repair the function",
        "make the tests pass again: find the bug in {package}",
        "the tests of {package} show a fault: fix it",
        "{test} must pass again: fix the fault",
        "find and fix the fault: {test} of {package} does not pass",
        "find the fault in {package} that makes the tests fail and fix it",
        "fix the function so that {test} passes again",
        "repair the code so that {test} does not fail",
        "some tests of {package} do not pass: repair the code",
        "a test of {package} fails: find the bug and repair the code",
        "look for the fault in {package} and fix the function",
        "repair {package}: {test} fails",
        "there is a bug in the code of {package}: fix the function",
        "make all tests pass again: find the fault in {package}",
        "the tests of {package} show a bug: repair it",
        "{test} must pass again: repair the bug",
        "find and repair the bug: {test} of {package} does not pass",
    ),
    test=(
        "look for the fault that makes {test} fail and repair the code",
        "find out what makes {test} fail and fix it",
        "look for what makes the tests of {package} fail and repair it",
        "find the function that fails in {package} and fix it",
        "repair the function in {package} that makes {test} fail",
        "fix the code of {package}: there is a bug in it",
        "make the code of {package} pass all tests",
        "make {package} pass {test} again",
        "see that all tests of {package} pass: find the bug",
        "see that {package} passes its tests again",
        "fix {package} so that {test} passes",
        "repair the fault in {package} that makes {test} fail",
        "some tests show a bug in {package}: find and repair it",
        "the code of {package} does not pass {test}: repair it",
        "there is a fault in {package} and {test} fails: fix it",
        "{test} of {package} fails: find the fault and repair it",
        "a function in {package} does not pass its tests: fix it",
    ),
    out_of_vocabulary=(
        "troubleshoot {package} and sort it out",
        "get to the bottom of {test} and sort it out",
        "heal {package}",
        "undo the regression in {package}",
        "squash the regression in {package}",
        "squash whatever breaks {test}",
        "bring {package} back to health",
        "work out why {test} is unhappy and remedy it",
        "remedy the failure in {package}",
        "correct the logic of {package}: {test} is unhappy",
        "nurse {package} until its tests succeed",
        "restore {package} to working order",
        "{package} is busted: sort it out",
        "{test} keeps failing: remedy {package}",
        "something is off in {package}; remedy it",
    ),
)
