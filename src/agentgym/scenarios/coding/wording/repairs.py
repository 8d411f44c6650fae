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
    ),
    test=(
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
    out_of_vocabulary=(
        "debug {package} until its suite is green",
        "{package} misbehaves: diagnose and cure it",
        "resolve whatever broke {test}",
        "mend {package}; its build is red",
        "patch the defect behind {test}",
        "chase the defect within {package} and patch it",
        "diagnose why {test} is red and cure the culprit",
        "get {package} green again by patching the culprit",
        "eliminate the defect of {package}",
        "{test} is red: patch the culprit",
        "rectify the mistake somewhere in {package}",
        "{package} regressed: diagnose and patch it",
    ),
)
