"""Test an agent in CI: a contract with limits, recorded answers, reports."""
