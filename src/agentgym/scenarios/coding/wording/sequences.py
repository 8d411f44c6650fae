"""Requests that take two calls, the second after the first."""

from agentgym.scenarios.coding.wording.grammar import Phrases

FIND_THEN_READ = Phrases(
    train=(
        (
            "[find|search for|look for] the file that [defines|sets] {name} "
            "and [open|read] it"
        ),
        "[find|search for|look for] the [file|module] with {name} and [open|read] it",
        (
            "[find|search for|look for] {name}, then [open|read] the "
            "[file|module] it is in"
        ),
        "[find|search for] {name}, then [open|read] [that file|that module]",
        "find the [file|module] where {name} is [defined|set], then [open|read] it",
        "find out where {name} is defined, then [open|read] that [file|module]",
        (
            "[open|read] the [file|module] that [defines|sets] {name}; "
            "[search|look] for it first"
        ),
        (
            "[search|look] for {name} first, then [open|read] the [file|module] "
            "that [defines|sets] it"
        ),
        "first [find|search for] {name}, then show me the [file|module]",
    ),
    validation=(
        "look for the module where {name} is defined and read it",
        "search for the file where {name} is set and open it",
        "find the module that sets {name}, then read it",
        "find {name} first, then open the file it is in",
        "find out where {name} is set, then open the file",
        "read the file where {name} is defined; search for it first",
        "first look for {name}, then read the module it is in",
        "search for {name}, then show me that module",
        "open the file with {name}; find it first",
        "look for {name} and open the file that sets it",
        "first find out where {name} is defined, then read that file",
        "show me the file that defines {name}; search for {name} first",
        "search for the module where {name} is defined and read it",
        "look for the file where {name} is set and open it",
        "find the module that defines {name}, then open it",
        "find {name} first, then read the module it is in",
        "find out where {name} is set, then read the module",
        "open the module where {name} is set; look for it first",
        "first search for {name}, then open the file it is in",
        "look for {name}, then show me that file",
        "read the module with {name}; find it first",
        "search for {name} and read the file that defines it",
        "first find out where {name} is set, then open that module",
        "show me the module that sets {name}; look for {name} first",
    ),
    test=(
        "find where {name} is set, then read that file",
        "find where {name} is defined and open the file",
        "search for {name} first, then show me the file",
        "look for the file that {name} is in and read it",
        "first look for {name}, then show me the file it is in",
        "search for where {name} is defined, then open that module",
        "look for the module that defines {name} first, then open it",
        "find out which file sets {name}, then open it",
        "find out which module defines {name} and read it",
        "search for {name} to find its module, then read it",
        "look for {name} and show me the module that defines it",
        "read the file that {name} is in; find it first",
        "open the module {name} is in; search for it first",
        "show me the module with {name}; look for it first",
        "first find the file with {name}, then open it",
        "first search for the module with {name}, then read it",
    ),
    out_of_vocabulary=(
        "uncover the whereabouts of {name}, next study that file",
        "scour the tree for {name} and study the match",
        "sniff out {name} and skim its module",
        "sift the repo for {name}, next browse the match",
        "comb our sources for {name}; browse the match",
        "spot the declaration of {name} and page through its file",
        "run a lookup on {name} and quote the matching file",
        "figure out who declares {name}, next skim that file",
        "navigate to {name} and present the surrounding module",
        "hop to the declaration of {name} and study it in full",
        "ascertain which file declares {name}, next quote it",
        "rummage around for {name}, next study where it lives",
        "uncover {name} and paste its module here",
        "whichever module declares {name}: look it up and skim it.",
    ),
)

TEST_THEN_READ = Phrases(
    train=(
        (
            "run [all tests|all the tests|the tests|the test suite] and "
            "[open|read|show me] the module that fails"
        ),
        (
            "run [all tests|all the tests|the tests|the test suite], then "
            "[open|read|show me] the module [that fails|whose tests fail]"
        ),
        "[open|read] the module whose tests fail; run [all tests|the tests] first",
        (
            "first run [all tests|the tests|the test suite], then [open|read] "
            "the [module that fails|failing module]"
        ),
        "find the failing module with the tests, then [open|read] it",
        "[find out|see] which module fails its tests, then [open|read] it",
        "[find out|see] which tests fail, then [open|read] [that module|their module]",
        (
            "[some tests fail|a test fails|something fails]: "
            "run [all tests|the tests] and [open|read|show me] the module"
        ),
        "run the tests; after that, [open|read] the module that fails in the suite",
    ),
    validation=(
        "run the test suite and read the failing module",
        "run all the tests; after that, open the failing module",
        "read the module that fails; run the test suite first",
        "first run all the tests, then show me the module that fails",
        "run the tests to see which module fails, then read it",
        "find the module that fails with the tests, then open it",
        "see which module fails in the test suite, then read that module",
        "find out whose tests fail, then open that module",
        "a test fails: run the test suite, then read its module",
        "some tests fail: run all the tests, then open the module",
        "something fails: see which tests fail and read their module",
        "show me the failing module; run the tests first",
        "run the tests and open the failing module",
        "run all the tests, then read the failing module",
        "open the module that fails; run the test suite first",
        "first run all the tests, then open the module whose tests fail",
        "run all tests to see which module fails, then open it",
        "find the module whose tests fail, then read it",
        "find out which module fails in the test suite, then open that module",
        "see whose tests fail, then read that module",
        "a test fails: run all the tests, then open its module",
        "some tests fail: run the test suite, then read the module",
        "something fails: find out which tests fail and open their module",
        "show me the failing module; run all tests first",
    ),
    test=(
        "run all tests first, then open the module that fails",
        "run the suite and show me the failing module",
        "run the whole test suite, then open the failing module",
        "first run the suite to see which tests fail, then read their module",
        "first find out which module fails its tests, then open it",
        "open the module that fails in the tests; run all of the tests first",
        "read the module whose tests fail in the suite; run it first",
        "show me the module that fails; run the whole suite first",
        "see which of the tests fail and open their module",
        "find out with the tests which module fails, then read it",
        "find the tests that fail, then open their module",
        "run the tests to find the failing module, then read it",
        "something fails in the suite: run all the tests and open the module",
        "some module fails its tests: run the suite, then open it",
        "a module fails in the test suite: run the tests and read it",
        "after you run all the tests, open the module that fails",
    ),
    out_of_vocabulary=(
        "spin up the tests and study the faulty module",
        "do a test sweep and skim whatever regressed",
        "run a regression check, next browse the faulty module",
        "crunch through the testcases and quote the faulty module",
        "put the tests to work and present the offender",
        "figure out by testing which module regressed, next study it",
        "ascertain the offender through the tests and browse it",
        "isolate the faulty module by testing, next skim it",
        "call pytest and study the offender",
        "begin by a test sweep and end by browsing the faulty module",
        "uncover the regressed module through the tests and paste it here",
        "pick the faulty module by running tests and quote it",
        "pytest is unhappy: study the offender.",
        "we have a regression: test, next study the offender.",
    ),
)

FORMAT_THEN_LINT = Phrases(
    train=(
        "[format|reformat] {file}, then lint it",
        "[format|reformat] {file} and then [lint it|run the linter on it]",
        "first [format|reformat] {file}, then [lint it|run the linter on it]",
        "[format|reformat] {file}, then check it for [problems|warnings]",
        (
            "[fix|tidy|clean up] the [layout|spacing] of {file}, then "
            "[lint it|check it for problems|run the linter on it]"
        ),
        "run the formatter and then the linter [on|over] {file}",
        "run first the formatter, then the linter [on|over] {file}",
        "[lint|check] {file} for problems after you [format|reformat] it",
        "[format|tidy] {file}, then tell me [which|what] [problems|warnings] are left",
        "{file} needs the formatter first, then the linter.",
        "take [the|a] formatter for {file}, then run [the|a] linter on it",
        "use the formatter on {file} [first|now] and lint it [then|after that]",
    ),
    validation=(
        "reformat {file}, then tell me which problems are left",
        "tidy up {file}, then run the linter on it",
        "clean up {file} first, then lint it",
        "lint {file} for warnings after you format it",
        "first fix the spacing of {file}, then check it for warnings",
        "run the formatter on {file}, then the linter",
        "use the formatter on {file} and then lint it",
        "first run the formatter over {file}, then lint it",
        "fix the layout of {file} and then check it for problems",
        "format {file} first; then check it with the linter",
        "{file} needs first a formatter and then a linter.",
        "after you tidy the layout of {file}, lint it",
        "reformat {file}, then tell me what warnings are left",
        "tidy up {file}, then check it for warnings",
        "clean up {file} first, then run the linter on it",
        "check {file} for warnings after you reformat it",
        "first fix the layout of {file}, then run the linter over it",
        "run the formatter over {file}, then lint it",
        "use the formatter over {file} and then the linter",
        "first run the formatter on {file}, then check it for problems",
        "tidy the spacing of {file} and then lint it",
        "reformat {file} first; then run the linter",
        "{file} needs a formatter, then a linter.",
        "after you format {file}, lint it",
    ),
    test=(
        "reformat {file} and check it for warnings after that",
        "format {file}, then use the linter on it",
        "format {file} and tell me what problems are left",
        "tidy {file} with the formatter, then lint it",
        "clean up {file} with the formatter and lint it after that",
        "first tidy up {file}, then check it for problems",
        "first clean up the spacing of {file}, then lint it",
        "tidy the layout of {file} and run the linter on it",
        "take the formatter and then the linter for {file}",
        "run the linter over {file} after you format it",
        "use the linter on {file} after you tidy it up",
        "run {file} through the formatter, then lint it",
        "reformat {file}; after that, tell me which warnings are left",
        "fix the spacing in {file}; then run the linter over it",
        "{file} needs the formatter and after that the linter.",
        "after you reformat {file}, check it for problems",
    ),
    out_of_vocabulary=(
        "spruce {file} up, next nitpick it",
        "autoformat {file}, next vet it",
        "run ruff format across {file}, next ruff check",
        "groom {file} and vet it thereafter",
        "reindent {file} and report whatever remains fishy",
        "apply yapf, next pylint, to {file}",
        "unify the spaces of {file}, next proofread it",
        "do a cosmetic pass over {file} followed by a quality check",
        "indent {file} properly, next grade it by coding standards",
        "treat {file} to a facelift followed by a quality check",
        "iron {file} out and nitpick it thereafter",
        "touch {file} up cosmetically, next unearth leftover blunders",
        "vet {file} once autoformatted",
        "{file} wants grooming followed by vetting.",
    ),
)
