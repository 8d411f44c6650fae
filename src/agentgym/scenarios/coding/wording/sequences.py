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
    ),
    test=(
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
    out_of_vocabulary=(
        "locate {name} and dump its file afterwards",
        "grep {name}, afterwards cat the hit",
        "track down {name} and bring up its home",
        "pinpoint {name} and inspect whatever holds it",
        "trace {name} to its origin and dump the origin",
        "discover which module owns {name}, afterwards inspect the owner",
        "dig up {name} and fetch its module",
        "detect the home of {name} and reveal it",
        "locate the origin of {name}; reveal that module afterwards",
        "query {name} and inspect the hit",
        "track {name} down, afterwards peek into its module",
        "whichever file owns {name}: locate and inspect it.",
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
    ),
    test=(
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
    out_of_vocabulary=(
        "kick off pytest and inspect the culprit module",
        "exercise the suite and bring up whatever broke",
        "launch the tests and dump the red module",
        "identify the broken module by testing, afterwards inspect it",
        "fire up the tests; inspect the guilty module",
        "determine by testing which module is broken and reveal it",
        "use the suite to spot the culprit and cat it",
        "let the tests expose the guilty module and inspect that",
        "verify the build, afterwards dump the red module",
        "the build is red: inspect the culprit.",
        "something broke: identify the module by testing and inspect it",
        "spot the broken module through the tests and fetch it",
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
    ),
    test=(
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
    out_of_vocabulary=(
        "beautify {file}, afterwards audit it statically",
        "apply black and afterwards flake8 to {file}",
        "prettify {file} and inspect it statically afterwards",
        "normalize the whitespace of {file}, afterwards report static issues",
        "polish {file}, afterwards audit it",
        "neaten {file} and scrutinize it afterwards",
        "restyle {file}, afterwards perform static analysis",
        "apply autopep8 to {file} prior to static analysis",
        "straighten {file} out, afterwards review its issues",
        "beautify and afterwards audit {file}",
        "{file} deserves beautifying, afterwards auditing.",
        "statically audit {file} once it is prettified",
    ),
)
