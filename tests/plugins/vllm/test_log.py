"""Why vLLM ended, from logs in the form that vLLM 0.32 writes."""

import pytest

from agentgym.plugins.vllm.server import why_it_ended

AFTERWARDS = """\
Traceback (most recent call last):
  File "/env/bin/vllm", line 8, in <module>
    sys.exit(main())
             ^^^^^^
RuntimeError: Engine core initialization failed. See root cause above. Failed: {}
nanobind: leaked 4 instances!
 - leaked instance 0x7f of type "ir.attribute"
 - ... skipped remainder
/lib/python3.12/resource_tracker.py:254: UserWarning: There appear to be 1 leaked
  warnings.warn('resource_tracker: There appear to be %d '
"""
WORKER = """\
(APIServer pid=9) WARNING 11-24 09:52:20 [utils.py:25] Limits: `OSError: too many`.
(EngineCore pid=10) INFO 11-24 09:52:21 [v.py:9] Initializing
(Worker pid=11) ERROR 11-24 09:52:49 [v.py:9] WorkerProc failed to start.
(Worker pid=11) ERROR 11-24 09:52:49 [v.py:9] Traceback (most recent call last):
(Worker pid=11) ERROR 11-24 09:52:49 [v.py:9]     self.load_model()
(Worker pid=12) ERROR 11-24 09:52:49 [v.py:9] Traceback (most recent call last):
(Worker pid=11) ERROR 11-24 09:52:49 [v.py:9] RuntimeError: sizes 384 and 192
(Worker pid=12) ERROR 11-24 09:52:49 [v.py:9] DistError: connection closed
(EngineCore pid=10) ERROR 11-24 09:52:52 [v.py:9] Traceback (most recent call last):
(EngineCore pid=10) ERROR 11-24 09:52:52 [v.py:9] Exception: See root cause
"""
MEMORY = """\
(EngineCore pid=10) ERROR 11-24 09:54:12 [v.py:9] EngineCore failed to start.
(EngineCore pid=10) ERROR 11-24 09:54:12 [v.py:9] Traceback (most recent call last):
(EngineCore pid=10) ERROR 11-24 09:54:12 [v.py:9]     check_memory(
(EngineCore pid=10) ERROR 11-24 09:54:12 [v.py:9] ValueError: No available memory for the cache
(EngineCore pid=10) ERROR 11-24 09:54:14 [v.py:9] Worker proc W-0 died unexpectedly.
"""  # noqa: E501
KILLED = """\
(APIServer pid=9) ERROR 11-24 10:00:00 [s.py:7] Traceback (most recent call last):
(APIServer pid=9) ERROR 11-24 10:00:00 [s.py:7] ValueError: one request was bad
(EngineCore pid=10) ERROR 11-24 10:06:58 [v.py:9] Worker proc W-0 died unexpectedly.
(EngineCore pid=10) ERROR 11-24 10:06:58 [v.py:9] Traceback (most recent call last):
(EngineCore pid=10) ERROR 11-24 10:06:58 [v.py:9] RuntimeError: Executor failed.
"""
LENGTH = """\
Traceback (most recent call last):
  File "/env/bin/vllm", line 8, in <module>
pydantic_core.ValidationError: 1 validation error for ModelConfig
  Value error, max_model_len (99999) is greater than 1024
"""


@pytest.mark.parametrize(
    ("text", "says", "advice"),
    [
        (WORKER + AFTERWARDS, "says: RuntimeError: sizes 384 and 192.", ""),
        (MEMORY + AFTERWARDS, "says: ValueError: No available memory", "Raise gpus."),
        (KILLED + AFTERWARDS, "says: Worker proc W-0 died", "Lower gpus."),
        (LENGTH, "ModelConfig Value error, max_model_len (99999)", ""),
        ("usage: vllm\nvllm serve: error: no 'x'\n", "vllm serve: error: no 'x'", ""),
        ("one\n\ntwo\n", "ends: one | two.", ""),
        ("", "ends: nothing.", ""),
    ],
)
def test_the_first_error_of_who_knows_best(text: str, says: str, advice: str) -> None:
    found = why_it_ended(text)
    assert says in found
    assert advice in found
    assert "nanobind" not in found
    assert "root cause" not in found
