"""Load the file ``.env`` from the folder in which a command is started.

Other people may have written the file, as part of a project. So it must not set
variables that make a program run code, or that send a run to another machine.
"""

import os
import re
import sys

FILE = ".env"
# AgentGym's variables that `.env` may not set. They name code to run (a module, a
# scenario's folder, a saved agent, a server's flag), switch protection off, or choose
# the machine or server to which a run, its rollouts or its keys are sent.
NOT_FROM_FILE = frozenset(
    f"AGENTGYM_{name}"
    for name in (
        *("CHAT_TEMPLATE", "ELSEWHERE_PYTHON", "GPU", "HOME", "JUDGE", "JUDGE_MODEL"),
        *("JUDGE_RUBRIC", "PROMPTS", "SCENARIO", "UNSAFE_LOCAL_EXEC", "USER"),
        "USER_MODEL",
    )
)
# Further variables that `.env` may not set. They name code that Python, uv, git and
# other programs run, or addresses to which keys are sent.
_LOADERS = re.compile(
    r"""
    AGENTGYM_(?:AGENT|VERL|VLLM)(?:_.*)?
    | PATH | HOME | XDG_CONFIG_HOME | VIRTUAL_ENV | SHELL
    | EDITOR | VISUAL | PAGER | BROWSER | CC | CXX | CUDA_HOME | IFS
    | (?:LD|DYLD|UV|PIP|CONDA|NPM_CONFIG|CARGO|BASH|GCONV|TRITON|TORCHINDUCTOR)_.*
    | PYTHON(?:PATH|HOME|STARTUP|INSPECT|USERBASE|EXECUTABLE|PLATLIBDIR|BREAKPOINT
        |WARNINGS|PYCACHEPREFIX)
    | GIT_(?:SSH|CONFIG|EXEC|ASKPASS|EDITOR|PAGER|PROXY|TEMPLATE|EXTERNAL).*
    | SSH_ASKPASS.* | NODE_(?:OPTIONS|PATH) | PERL5.* | RUBY(?:OPT|LIB) | RUSTC.*
    | JAVA_TOOL_OPTIONS | JDK_JAVA_OPTIONS | GO(?:FLAGS|PATH|ROOT|PROXY|TOOLCHAIN)
    | RAY_ADDRESS | VLLM_PLUGINS | VLLM_CACHE_ROOT | HF_MODULES_CACHE
    | TORCH_EXTENSIONS_DIR | (?:RUNPOD|LAMBDA)_API_URL
    """,
    re.VERBOSE | re.IGNORECASE,
)


def load_env_file() -> None:
    """Set the variables in ``./.env`` that are not set yet, and that it may set."""
    file = os.path.abspath(FILE)
    if not os.path.isfile(file):
        return
    from dotenv.main import DotEnv

    from agentgym.security.redaction import VARIABLE, looks_secret

    found = DotEnv(file, override=False, encoding="utf-8").dict()
    new = {n: v for n, v in found.items() if v is not None and n not in os.environ}
    left_out = sorted(filter(is_left_out, new))
    os.environ.update({n: v for n, v in new.items() if n not in left_out})
    if left_out:
        sys.stderr.write(
            f"Note: {file} may not set {', '.join(left_out)}: it would choose code to "
            "run, or where to run. Use an option or a variable of your shell instead.\n"
        )
    further = [n for n in found if looks_secret(n, os.environ.get(n, ""))]
    if further:
        named = filter(None, os.environ.get(VARIABLE, "").split(","))
        os.environ[VARIABLE] = ",".join(dict.fromkeys([*named, *further]))


def is_left_out(name: str) -> bool:
    """Return whether the variable ``name`` is ignored in ``.env``, for safety."""
    return name.upper() in NOT_FROM_FILE or bool(_LOADERS.fullmatch(name))
