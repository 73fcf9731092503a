"""What an action is and what comes back from it."""

from __future__ import annotations

import pytest

from tangram_workers import (
    Action,
    ActionFailedError,
    ActionTimedOutError,
    Client,
    Command,
    Elasticity,
    Outcome,
    ResourceVector,
    RewardRule,
)

MIB = 1024 * 1024


async def test_code_runs_and_its_output_comes_back(client: Client) -> None:
    result = await client.run_code("print(6 * 7)")
    assert result.outcome is Outcome.SUCCEEDED
    assert result.stdout == "42\n"
    assert result.exit_code == 0
    assert result.error is None


async def test_a_result_tells_where_the_time_went(client: Client) -> None:
    result = await client.run(["sleep", "0.2"])
    timings = result.timings
    assert timings.run_s >= 0.2
    assert timings.queue_wait_s >= 0
    assert timings.act_s == pytest.approx(timings.queue_wait_s + timings.run_s)
    assert result.attempt == 1
    assert result.worker
    assert result.node


async def test_a_result_tells_what_was_used(client: Client) -> None:
    result = await client.run_code("sum(range(3_000_000))")
    assert result.usage.cpu_s > 0
    assert result.usage.cores == 1


async def test_a_failing_program_is_a_failed_action(client: Client) -> None:
    result = await client.run_code("import sys; print('seen', file=sys.stderr); sys.exit(3)")
    assert result.outcome is Outcome.FAILED
    assert result.exit_code == 3
    assert result.stderr == "seen\n"
    with pytest.raises(ActionFailedError, match="exit code 3"):
        result.raise_for_outcome()


async def test_a_program_that_does_not_exist_is_a_failed_action(client: Client) -> None:
    result = await client.run(["no-such-program"])
    assert result.outcome is Outcome.FAILED
    assert result.exit_code == 127
    assert "no-such-program" in result.stderr


async def test_running_too_long_keeps_what_was_printed(client: Client) -> None:
    code = "print('so far', flush=True)\nwhile True: pass"
    result = await client.run_code(code, timeout_s=0.5)
    assert result.outcome is Outcome.TIMED_OUT
    assert result.stdout == "so far\n"
    assert "timeout_s=0.5" in (result.error or "")
    with pytest.raises(ActionTimedOutError):
        result.raise_for_outcome()


async def test_needing_too_much_memory_is_an_outcome_of_its_own(client: Client) -> None:
    result = await client.run_code(
        "x = bytearray(300 * 2**20)", resources=ResourceVector(memory_bytes=64 * MIB)
    )
    assert result.outcome is Outcome.OOM
    assert str(64 * MIB) in (result.error or "")


async def test_long_output_is_cut_and_flagged(client: Client) -> None:
    result = await client.run_code("print('x' * 3_000_000)")
    assert result.outcome is Outcome.SUCCEEDED
    assert result.stdout_truncated
    assert not result.stderr_truncated
    assert len(result.stdout) == 1024 * 1024


async def test_bytes_that_are_not_utf8_are_shown_and_not_lost(client: Client) -> None:
    result = await client.run_code(r"import sys; sys.stdout.buffer.write(b'caf\xe9')")
    assert result.stdout == r"caf\xe9"


async def test_files_input_and_variables_reach_the_program(client: Client) -> None:
    result = await client.run(
        ["sh", "-c", 'cat data/in.txt - && echo "$GREETING"'],
        files={"data/in.txt": "from a file\n"},
        stdin="from input\n",
        env={"GREETING": "hello"},
    )
    assert result.stdout == "from a file\nfrom input\nhello\n"


async def test_actions_of_a_trajectory_share_a_workspace(client: Client) -> None:
    await client.run(["true"], files={"note.txt": "kept"}, trajectory_id="episode-1")
    kept = await client.run(["cat", "note.txt"], trajectory_id="episode-1")
    other = await client.run(["cat", "note.txt"], trajectory_id="episode-2")
    assert kept.stdout == "kept"
    assert other.outcome is Outcome.FAILED


async def test_the_last_action_ends_the_workspace(client: Client) -> None:
    await client.run(["touch", "note.txt"], trajectory_id="episode-3")
    await client.run(["true"], trajectory_id="episode-3", last_of_trajectory=True)
    later = await client.run(["ls"], trajectory_id="episode-3")
    assert later.stdout == ""


async def test_an_elastic_action_gets_the_cores_that_are_free(client: Client) -> None:
    result = await client.run(["nproc"], elasticity=Elasticity(min_units=1, max_units=64))
    assert result.usage.cores >= 1
    assert result.stdout == f"{result.usage.cores}\n"


async def test_a_reward_is_read_from_what_the_program_proved(client: Client) -> None:
    proven = RewardRule(last_line="all tests passed: 8f2c")
    passed = await client.run_code("print('all tests passed: 8f2c')", reward_rule=proven)
    left_early = await client.run_code("import os; os._exit(0)", reward_rule=proven)
    assert passed.reward == 1.0
    assert left_early.outcome is Outcome.SUCCEEDED
    assert left_early.reward == 0.0


async def test_the_same_idempotency_key_is_the_same_action(client: Client) -> None:
    action = Action(
        command=Command(argv=("sh", "-c", "date +%N; cat /proc/sys/kernel/random/uuid")),
        idempotency_key="step-7/sample-3/action-2",
    )
    first, second = await client.submit_many([action, action])
    later = await client.submit(action)
    assert first.action_id == second.action_id == later.action_id
    assert (await first) == (await second) == (await later)


async def test_waiting_too_long_in_the_queue_is_an_outcome_of_its_own(client: Client) -> None:
    blockers = [Action(command=Command(argv=("sleep", "1.5"))) for _ in range(4)]
    running = await client.submit_many(blockers)
    late = await client.submit(Action(command=Command(argv=("true",)), queue_timeout_s=0.3))
    result = await late
    assert result.outcome is Outcome.EXPIRED
    assert result.timings.started_s is None
    assert {r.outcome for r in await client.gather(running)} == {Outcome.SUCCEEDED}
