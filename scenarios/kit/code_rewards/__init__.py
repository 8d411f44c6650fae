"""Rewards for code, composed of weighted parts.

- ``parts``: the base class of a part, a part for right results by hidden tests in the
  sandbox, and the reward that combines parts.
- ``efficiency``: a part for CPU time and memory, relative to a reference solution.
- ``static_checks``: the problems that ruff, bandit and radon find in code, and parts
  for style, security and complexity.
"""

from .efficiency import Efficiency as Efficiency
from .parts import ComposedReward as ComposedReward
from .parts import Correctness as Correctness
from .parts import RewardPart as RewardPart
from .parts import SubmittedCode as SubmittedCode
from .parts import is_test_file as is_test_file
from .static_checks import KINDS as KINDS
from .static_checks import CodeFinding as CodeFinding
from .static_checks import Complexity as Complexity
from .static_checks import Security as Security
from .static_checks import Style as Style
from .static_checks import complexities as complexities
from .static_checks import find_problems as find_problems
