"""Bugs made on purpose in the layers above the maths, each with the test that must fail because of it.

`python tests/seeded_bugs.py [NAME ...]` makes one bug at a time in a copy of the package, runs its test, and exits with
1 if any test still passes. The maths have their own in `test_mutations.py`.
"""

import os
import shutil
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parent.parent
PRELOADED = ("numpy", "scipy.special", "scipy.stats", "jax", "jax.numpy", "beartype", "yaml")
PRELOADED += ("rich.console", "rich.progress", "tyro", "polars", "psutil", "safetensors.numpy")
"""Imported once; each test runs in a fork that has not imported the package yet."""

OPTIONS = ("-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")


@dataclass(frozen=True)
class Bug:
    """A replacement in one file."""

    file: str
    right: str
    wrong: str
    test: str
    """A file in this folder, `::` and the test that must fail."""


BUGS = {
    "a proof forgets the options of its cell": Bug(
        "parity/__init__.py",
        "fields |= _options(algorithm)[option]",
        "_options(algorithm)[option]",
        "test_surrogates.py::test_a_program_with_another_surrogate_does_not_pass_by_the_proof_of_clip",
    ),
    "the gradient of images is not flipped": Bug(
        "backends/kernel_gradients.py",
        "kernel[::-1, ::-1].swapaxes(2, 3)",
        "kernel.swapaxes(2, 3)",
        "test_kernel_gradients.py::test_gradients_of_convolutions_are_the_same",
    ),
    "what happens once is predicted again and again": Bug(
        "measure/metrics.py",
        "if rare.sum() > MOST_RARE:",
        "if rare.sum() > 0:",
        "test_relay.py::test_what_happens_once_in_a_training_is_predicted_once",
    ),
    "the first block is taken for all": Bug(
        "measure/stopping.py",
        "return later_s / first_s",
        "return 1.0",
        "test_relay_campaign.py::test_a_first_block_that_compiles_for_all_does_not_end_a_campaign",
    ),
    "the busiest processor is chosen": Bug(
        "measure/machine.py",
        "round(2 * (busy or {})",
        "-round(2 * (busy or {})",
        "test_machine.py::test_processors_that_others_keep_busy_are_avoided",
    ),
    "waiting for a processor counts": Bug(
        "measure/metrics.py",
        "1.0 - (waited or 0.0) / total",
        "1.0",
        "test_relay.py::test_waiting_for_a_processor_that_others_have_is_not_counted",
    ),
    "whole trainings are predicted without their waiting": Bug(
        "measure/metrics.py",
        "for share in (None, running_share(record))",
        "for share in (running_share(record), running_share(record))",
        "test_relay.py::test_waiting_for_a_processor_that_others_have_is_not_counted",
    ),
    "sleep is taken for waiting": Bug(
        "measure/clock.py",
        "share = min(1.0, max(0.0, queued_s) / sum(without_s))",
        "share = 1.0",
        "test_clock.py::test_a_process_waits_while_it_queues_and_does_not_run",
    ),
    "a mirrored ratio is printed as it was": Bug(
        "analysis/wording.py",
        "(_over(ratio), _over(high), _over(low))",
        "(ratio, _over(high), _over(low))",
        "test_printed.py::test_a_number_is_rounded_once_wherever_it_is_printed",
    ),
    "one start has an interval": Bug(
        "cli/outcomes.py",
        '"once" if row.half_width is None else',
        '"" if row.half_width is None else',
        "test_printed.py::test_what_was_measured_once_is_printed_as_such",
    ),
    "evaluation repeats its noise": Bug(
        "training/evaluate.py",
        "env.random(seed + 1 + t // NOISE_STEPS)",
        "env.random(seed + 1)",
        "test_evaluate.py::test_noise_is_not_repeated_within_an_evaluation",
    ),
    "the reference of pairs starts first": Bug(
        "measure/block.py",
        "Relay(job.cells, job.seed,",
        "Relay(sorted(job.cells, key=lambda cell: cell != job.reference), job.seed,",
        "test_relay_campaign.py::"
        "test_starts_are_in_the_order_of_the_schedule_and_pairs_are_with_the_first_cell_of_the_study",
    ),
    "turns stay where the starts were": Bug(
        "measure/relay.py",
        "machine.pin(runner.listener.process.pid, runner.cell.threads, busy=self.busy)",
        "pass",
        "test_relay_process.py::"
        "test_runners_that_load_their_programs_start_on_all_processors_and_then_run_on_the_usual_ones",
    ),
    "programs that are compiled start side by side": Bug(
        "measure/relay.py",
        "if all(map(self.relay.has_programs, cells)) else 1",
        "if self.relay.has_programs else 1",
        "test_relay_process.py::test_starts_that_compile_are_alone",
    ),
    "everybody writes the weights": Bug(
        "measure/relay.py",
        '"writes": first}',
        '"writes": True}',
        "test_relay_process.py::test_one_writes_the_weights_and_the_others_load_them",
    ),
    "one noisy run too many": Bug(
        "measure/policy.py",
        "tagged >= MAX_TAGGED",
        "tagged > MAX_TAGGED",
        "test_store.py::test_a_slot_is_closed_by_a_clean_result_or_by_enough_tries",
    ),
    "first noisy run speaks for its slot": Bug(
        "measure/policy.py",
        "results[-1] if results",
        "results[0] if results",
        "test_store.py::test_a_slot_is_closed_by_a_clean_result_or_by_enough_tries",
    ),
    "interrupted runs count as failures": Bug(
        "measure/policy.py",
        'x.outcome not in ("ok", "interrupted")',
        'x.outcome != "ok"',
        "test_store.py::test_a_slot_is_closed_by_a_clean_result_or_by_enough_tries",
    ),
    "every block in an order of its own": Bug(
        "measure/plan.py",
        "int(group, 16), block // 2])",
        "int(group, 16), block])",
        "test_plan.py::test_a_block_is_reversed_in_the_next",
    ),
    "all blocks share a seed": Bug(
        "measure/plan.py",
        "(start + block * SEED_STEP)",
        "(start + seed * SEED_STEP)",
        "test_plan.py::test_seeds_are_shared_within_a_block_and_differ_between",
    ),
    "canaries of one group only in the cost": Bug(
        "measure/plan.py",
        "len({(by_id[slot.cell].group, slot.block) for slot in slots})",
        "len({slot.block for slot in slots})",
        "test_plan.py::test_estimate_counts_the_canaries_of_every_group",
    ),
    "most cost is the least": Bug(
        "measure/plan.py",
        "most_seconds=min(seconds * growth",
        "most_seconds=min(seconds / growth",
        "test_plan.py::test_estimate_counts_the_canaries_of_every_group",
    ),
    "precision of the whole interval": Bug(
        "measure/stopping.py",
        "return math.log(high / low) / 2",
        "return math.log(high / low)",
        "test_stopping.py::test_half_the_interval_of_a_paired_t",
    ),
    "effect of a run in place of a ratio": Bug(
        "measure/plan.py",
        "math.sqrt(2) * cv",
        "cv",
        "test_plan.py::test_detectable_effect_shrinks_with_blocks_and_grows_with_noise",
    ),
    "chunks take the disk of iterations": Bug(
        "measure/plan.py",
        '(cell.run["num_iterations"] // length)',
        'cell.run["num_iterations"]',
        "test_plan.py::test_a_program_of_many_iterations_stores_a_value_a_call",
    ),
    "noise below the limit": Bug(
        "measure/machine.py",
        "if noise.get(name, 0.0) > limit",
        "if noise.get(name, 0.0) < limit",
        "test_machine.py::test_violations_name_what_was_too_much",
    ),
    "own work counted as noise": Bug(
        "measure/machine.py",
        'change["busy_s"] - change["own_s"]',
        'change["busy_s"]',
        "test_machine.py::test_noise_is_read_from_the_systems_counters",
    ),
    "steal per second, not per processor second": Bug(
        "measure/machine.py",
        'change["steal_s"] / change["cpu_s"]',
        'change["steal_s"] / elapsed_s',
        "test_machine.py::test_noise_is_read_from_the_systems_counters",
    ),
    "waiting for the disk is work": Bug(
        "measure/machine.py",
        "busy = user + nice + system + irq + soft",
        "busy = user + nice + system + irq + soft + wait",
        "test_machine.py::test_waiting_for_the_disk_is_not_work",
    ),
    "pressure in milliseconds": Bug(
        "measure/machine.py",
        'rpartition("total=")[2]) / 1e6',
        'rpartition("total=")[2]) / 1e3',
        "test_machine.py::test_noise_is_read_from_the_systems_counters",
    ),
    "update holds the rollout": Bug(
        "measure/clock.py",
        "tape.total_s[-1] - tape.rollout_s[-1]",
        "tape.total_s[-1]",
        "test_clock.py::test_sync_times_every_phase_by_itself",
    ),
    "compilations before the run are the first call's": Bug(
        "measure/clock.py",
        "counts = [(backend.compiles(), 0, 0)]",
        "counts = [(0, 0, 0)]",
        "test_clock.py::test_compiles_and_transfers_are_counted_where_they_happen",
    ),
    "waits after the clock are overlooked": Bug(
        "measure/clock.py",
        "if first_s - second_s >",
        "if second_s - first_s >",
        "test_clock.py::test_a_backend_that_forgets_to_wait_is_caught",
    ),
    "a call ends when the next is dispatched": Bug(
        "measure/clock.py",
        "ahead = 0 if first or last or waits[-1] is None else 1",
        "ahead = 0 if first or last else 1",
        "test_clock.py::test_async_gives_each_call_its_own_time_where_the_device_computes_before_it_returns",
    ),
    "checksums of messages are not compared": Bug(
        "measure/wire.py",
        "if _crc(body) != crc:",
        "if False:",
        "test_wire.py::test_none_of_ten_thousand_fuzzed_frames_is_accepted",
    ),
    "zero durations are accepted": Bug(
        "measure/wire.py",
        "x is not None and x > 0 for x in durations",
        "x is not None and x >= 0 for x in durations",
        "test_wire.py::test_a_training_whose_calls_took_no_time_is_refused",
    ),
    "a resumed run loses a row": Bug(
        "training/rows.py",
        'int(row["iteration"]) <= iteration',
        'int(row["iteration"]) < iteration',
        "test_run_dir.py::test_a_resumed_run_goes_on_where_its_checkpoint_was",
    ),
    "a checkpoint too late": Bug(
        "training/run_dir.py",
        "iterations >= checkpoint_every",
        "iterations > checkpoint_every",
        "test_run_dir.py::test_checkpoints_are_as_far_apart_as_was_asked",
    ),
    "env steps of the iteration before": Bug(
        "training/run_dir.py",
        '"env_steps": i * run.config.batch_size',
        '"env_steps": (i - 1) * run.config.batch_size',
        "test_run_dir.py::test_rows_count_iterations_env_steps_and_compilations_once",
    ),
    "a resumed run starts its clock anew": Bug(
        "training/run_dir.py",
        'float(rows[-1]["seconds"]) if rows else 0.0',
        "0.0",
        "test_run_dir.py::test_a_resumed_run_goes_on_where_its_checkpoint_was",
    ),
    "compilations counted once for each iteration": Bug(
        "training/run_dir.py",
        "progress.compiles if i == first else 0",
        "progress.compiles",
        "test_run_dir.py::test_rows_count_iterations_env_steps_and_compilations_once",
    ),
    "later episodes overwrite the first": Bug(
        "training/evaluate.py",
        'ended = running & outcome["done"].astype(bool)',
        'ended = outcome["done"].astype(bool)',
        "test_evaluate.py::test_only_the_first_episode_of_an_environment_counts",
    ),
    "iteration of a checkpoint without checksum": Bug(
        "training/checkpoint.py",
        'for name in ("format", "version", "iteration", "run"):',
        'for name in ("format", "version", "run"):',
        "test_checkpoint.py::test_every_flipped_bit_is_noticed_or_harmless",
    ),
    "the worst point is the best": Bug(
        "tools/tune/result.py",
        '-_or_worst(line["score"])',
        '_or_worst(line["score"])',
        "test_tune.py::test_every_point_meets_the_same_seeds_and_the_best_mean_is_first",
    ),
    "the first tenth is scored": Bug(
        "tools/tune/result.py",
        "returns[len(returns) - math.ceil(LAST * len(returns)) :]",
        "returns[: math.ceil(LAST * len(returns))]",
        "test_tune.py::test_every_point_meets_the_same_seeds_and_the_best_mean_is_first",
    ),
    "the best run is as short as the search": Bug(
        "tools/tune/result.py",
        "full = replace(tuning, scale=1.0)",
        "full = tuning",
        "test_tune.py::test_the_best_of_a_scaled_tuning_is_a_run_of_full_length",
    ),
    "logarithmic ranges drawn evenly": Bug(
        "population/ranges.py",
        "math.exp(number) if self.log else number:.4g",
        "number:.4g",
        "test_tune.py::test_half_of_the_draws_lie_below_the_middle_of_the_scale",
    ),
    "points without all seeds come first": Bug(
        "tools/tune/result.py",
        '(line["seeds"] < seeds,',
        '(line["seeds"] >= seeds,',
        "test_tune.py::test_points_that_lack_a_seed_come_last_and_say_why",
    ),
    "env steps of a whole call in every row": Bug(
        "tools/track/run.py",
        'record.ledger.get("env_steps_per_call", 0) // length',
        'record.ledger.get("env_steps_per_call", 0)',
        "test_track.py::test_rows_hold_every_iteration_whatever_a_call_covers",
    ),
    "iterations of a chunk all end together": Bug(
        "tools/track/run.py",
        "seconds - durations[call] * (length - 1 - place) / length",
        "seconds",
        "test_track.py::test_rows_hold_every_iteration_whatever_a_call_covers",
    ),
    "runs of other strata overwrite each other": Bug(
        "tools/track/run.py",
        '(f"-stratum{slot.stratum}" if slot.stratum else "")',
        '""',
        "test_track.py::test_names_fit_a_folder_and_tell_runs_apart",
    ),
    "dispatch is compute": Bug(
        "measure/micro/summary.py",
        "max(0.0, call.value - dispatch.value)",
        "call.value",
        "test_micro.py::test_ratios_are_taken_within_rounds_and_dispatch_from_the_twin",
    ),
    "a limit of another width": Bug(
        "measure/micro/summary.py",
        "program.hidden[-1]) / product_s",
        "program.hidden[0]) / product_s",
        "test_micro.py::test_the_limit_is_the_rate_of_the_last_layers_product",
    ),
    "peers the wrong way round": Bug(
        "measure/peers/summary.py",
        "_ratio(_by_block(rows, workload, name), good)",
        "_ratio(good, _by_block(rows, workload, name))",
        "test_peers.py::test_summary_pairs_blocks_that_both_sides_finished",
    ),
    "peers of different blocks": Bug(
        "measure/peers/summary.py",
        "sorted(numerator.keys() & denominator.keys())",
        "sorted(numerator.keys() | denominator.keys())",
        "test_peers.py::test_summary_pairs_blocks_that_both_sides_finished",
    ),
    "the knee is the best": Bug(
        "stats/growth.py",
        "enough = KNEE * max(curve.values())",
        "enough = max(curve.values())",
        "test_growth.py::test_a_fixed_cost_and_one_for_each_have_their_knee_where_it_is_expected",
    ),
    "an exponent of the speed": Bug(
        "stats/growth.py",
        "return float(-(away @ speed)",
        "return float((away @ speed)",
        "test_growth.py::test_the_exponent_is_that_of_least_squares",
    ),
    "warm-up in the throughput": Bug(
        "measure/scale.py",
        "first = WARM_UP_CALLS + ",
        "first = 0 * ",
        "test_scale.py::test_learning_starts_before_it_is_timed",
    ),
    "time of others in the throughput": Bug(
        "measure/scale.py",
        "statistics.median(x * part for",
        "statistics.median(x for",
        "test_scale.py::test_rows_come_from_the_runs_in_the_store_without_the_time_of_others",
    ),
    "failed blocks counted": Bug(
        "measure/scale.py",
        '"blocks": len(good)}',
        '"blocks": len(rows)}',
        "test_scale.py::test_a_point_that_failed_is_shown_as_such_and_blocks_are_medians",
    ),
    "freedom n in place of n - 1": Bug(
        "stats/ratios.py",
        "math.sqrt(count), count - 1.0)",
        "math.sqrt(count), float(count))",
        "test_stats.py::test_paired_ratio_agrees_with_scipy",
    ),
    "variance of the population": Bug(
        "stats/ratios.py",
        "float(log_ratio.std(ddof=1))",
        "float(log_ratio.std())",
        "test_stats.py::test_paired_ratio_agrees_with_scipy",
    ),
    "one-sided interval": Bug(
        "stats/ratios.py",
        "(1 + confidence) / 2)) * found.error",
        "confidence)) * found.error",
        "test_stats.py::test_paired_ratio_agrees_with_scipy",
    ),
    "median interval too narrow": Bug(
        "stats/medians.py",
        "low = max(rank - 1, 0)",
        "low = max(rank, 0)",
        "test_stats.py::test_median_intervals_are_those_of_the_sign_test",
    ),
    "published windows by their names": Bug(
        "stats/published.py",
        "duration[1:8]",
        "duration[1:7]",
        "test_stats.py::test_published_windows_are_off_by_one",
    ),
    "a threshold reached once is held": Bug(
        "stats/returns.py",
        ".all(axis=1)",
        ".any(axis=1)",
        "test_stats.py::test_time_to_threshold",
    ),
    "the faster starter overtakes": Bug(
        "stats/breakeven.py",
        '"a" if behind > 0 else "b"',
        '"b" if behind > 0 else "a"',
        "test_stats.py::test_break_even_by_hand",
    ),
    "a sixth left out of the middle half": Bug(
        "stats/returns.py",
        "cut = count // 4",
        "cut = count // 6",
        "test_stats.py::test_interquartile_mean_agrees_with_scipy",
    ),
    "warm-up includes the first call": Bug(
        "stats/steady.py",
        "[first : segment.start] - segment",
        "[: segment.start] - segment",
        "test_stats.py::test_total_is_cold_start_excess_and_steady_iterations",
    ),
    "time left of all runs together": Bug(
        "stats/durations.py",
        "mean = statistics.fmean(medians)",
        "mean = sum(medians)",
        "test_stats.py::test_time_left_is_that_of_the_mean_cell",
    ),
    "every copy has the same seed": Bug(
        "envs/gymnasium.py",
        "reset(seed=seeds[e])",
        "reset(seed=seeds[0])",
        "test_python_envs.py::test_transitions_are_those_of_gymnasium",
    ),
    "final observations are those of the next episode": Bug(
        "envs/external/__init__.py",
        "obs = final_obs.copy()",
        "obs = final_obs",
        "test_external_env.py::test_statistics_are_those_of_one_episode",
    ),
    "lengths of episodes go on": Bug(
        "envs/external/__init__.py",
        "self._episode_return[ended], self._episode_length[ended] = 0, 0",
        "self._episode_return[ended] = 0",
        "test_external_env.py::test_statistics_are_those_of_one_episode",
    ),
    "actions beyond their bounds": Bug(
        "envs/vectorise.py",
        "action = jnp.clip(action, jnp.array(actions.low), jnp.array(actions.high))",
        "pass",
        "test_vectorise.py::test_actions_are_kept_within_their_bounds",
    ),
    "a time limit is a termination": Bug(
        "envs/vectorise.py",
        "jnp.asarray(terminated, jnp.bool_), truncated",
        "jnp.asarray(terminated, jnp.bool_) | truncated, truncated",
        "test_vectorise.py::test_a_time_limit_truncates_and_does_not_terminate",
    ),
    "a step and the reset after it share a key": Bug(
        "envs/vectorise.py",
        "step_key, reset_key = noise",
        "step_key, reset_key = noise[0], noise[0]",
        "test_vectorise.py::test_every_step_and_reset_of_every_environment_draws_its_own",
    ),
    "leases of any stratum": Bug(
        "measure/store.py",
        "(key, len(tries)) for key, tries in self._tries(stratum)",
        "(key, len(tries)) for key, tries in self._tries(None)",
        "test_store.py::test_slots_of_a_new_stratum_are_apart",
    ),
    "every owner is forgotten": Bug(
        "measure/store.py",
        "for name in filter(is_gone, owners):",
        "for name in owners:",
        "test_store.py::test_slots_of_an_owner_known_to_be_gone_are_open_at_once",
    ),
    "exports lose failed runs": Bug(
        "analysis/export.py",
        "for slot, cell, attempt in stored_attempts(store):",
        "for slot, cell, attempt in (x for x in stored_attempts(store) if x.attempt.record):",
        "test_export.py::test_runs_have_a_row_per_attempt",
    ),
    "calls counted over all samples": Bug(
        "analysis/export.py",
        "for call, value in enumerate(values):",
        "for call, value in enumerate(values, 1):",
        "test_export.py::test_samples_have_a_row_per_value",
    ),
    "blocks that some variants lack": Bug(
        "measure/stopping.py",
        "set.intersection(*",
        "set.union(*",
        "test_stopping.py::test_every_pair_is_compared_in_the_blocks_that_all_completed",
    ),
    "results of all strata pooled": Bug(
        "measure/results.py",
        "if slot.stratum == stratum and attempt.record is not None:",
        "if attempt.record is not None:",
        "test_results.py::test_times_of_a_stratum_are_its_own",
    ),
    "relative to the slowest": Bug(
        "measure/complexity.py",
        "fastest = min(other",
        "fastest = max(other",
        "test_terminal.py::test_steps_are_relative_to_the_fastest_at_the_same_size",
    ),
    "failed campaigns end well": Bug(
        "cli/running.py",
        "return FAILED_RUNS if failed else 0",
        "return 0",
        "test_run_end.py::test_a_campaign_with_failed_runs_is_told_by_its_exit_code",
    ),
    "the given order is ignored": Bug(
        "cli/planning.py",
        'for name in ("order", "repeats", "protocol")',
        'for name in ("repeats", "protocol")',
        "test_terminal.py::test_flags_of_a_plan_reach_the_study",
    ),
    "unfinished episodes have returns of zero": Bug(
        "cli/episodes.py",
        "finished = returns[~np.isnan(returns)]",
        "finished = np.nan_to_num(returns)",
        "test_terminal.py::test_episodes_that_did_not_finish_are_counted_apart",
    ),
    "minutes are hours": Bug(
        "cli/tables.py",
        "seconds / 3600:.1f} h",
        "seconds / 360:.1f} h",
        "test_terminal.py::test_durations_are_in_the_unit_they_name",
    ),
    "the blocks flag sets the least only": Bug(
        "cli/planning.py",
        '{"min_blocks": flags.blocks, "max_blocks": flags.blocks}',
        '{"min_blocks": flags.blocks}',
        "test_terminal.py::test_flags_of_a_plan_reach_the_study",
    ),
    "failures counted while interrupted": Bug(
        "cli/board.py",
        'attempt.outcome not in ("ok", "interrupted")',
        'attempt.outcome != "ok"',
        "test_terminal.py::test_a_board_counts_failures_and_not_interruptions",
    ),
    "canary after is before": Bug(
        "measure/coordinator.py",
        'self.run_canary(self.block, "after")',
        'self.run_canary(self.block, "before")',
        "test_campaign.py::test_a_campaign_runs_every_slot_once_with_canaries_and_proof",
    ),
    "points with seeds of their own": Bug(
        "population/spec.py",
        "Members(tuple(seeds) * len(points), values)",
        "Members(tuple(range(run.seed, run.seed + len(points) * len(seeds))), values)",
        "test_population_training.py::test_a_grid_has_every_combination_with_every_seed",
    ),
    "all members train with the floats of the run": Bug(
        "population/training.py",
        "many.init(keys_of(single, members), hyper_of(single, members))",
        "many.init(keys_of(single, members), single.hyper)",
        "test_population_training.py::test_a_member_is_the_same_run_alone",
    ),
    "a part of the curves spans a checkpoint": Bug(
        "population/training.py",
        "curves.save()  # before",
        "done >= run.config.num_iterations and curves.save()  # before",
        "test_population_training.py::test_what_a_killed_population_left_after_its_checkpoint_is_dropped",
    ),
    "curves after the checkpoint are kept": Bug(
        "population/folder.py",
        "if first > iteration:",
        "if first > 2 * iteration:",
        "test_population_training.py::test_what_a_killed_population_left_after_its_checkpoint_is_dropped",
    ),
    "the best member by the whole training": Bug(
        "population/folder.py",
        "iteration - last_tenth(iteration)",
        "0",
        "test_population_training.py::test_the_best_member_has_the_highest_return_of_the_last_tenth",
    ),
    "a bucket that a checkpoint divides begins anew": Bug(
        "population/folder.py",
        "if folder.rest(done).exists():",
        "if False:",
        "test_population_training.py::test_a_bucket_that_a_stop_divides_is_whole_after_resuming",
    ),
    "iterations without an episode count in a bucket": Bug(
        "population/thinning.py",
        "total / np.where(count, count, np.nan)",
        "total / self.open",
        "test_population_training.py::test_thinned_curves_give_the_same_scores_and_name_the_same_losses",
    ),
    "points of a search have the floats of the run": Bug(
        "measure/program.py",
        "hyper=hyper_of(single, grid_of(cell.vary, cell.members, run))",
        "hyper=many.hyper",
        "test_population_study.py::test_points_of_a_search_have_their_own_floats_and_common_seeds",
    ),
    "members without a value count": Bug(
        "population/summary.py",
        "count = finite.sum(axis=1)",
        "count = np.full(len(x), x.shape[1])",
        "test_population_training.py::test_members_without_a_finite_value_are_left_out_and_counted",
    ),
    "a member's checkpoint is that of the first": Bug(
        "population/folder.py",
        "np.array(x[index])",
        "np.array(x[0])",
        "test_population_training.py::test_a_member_is_the_same_run_alone",
    ),
    "the search's seeds are taken for fresh ones": Bug(
        "tools/tune/confirm.py",
        "programs_of(search.space.base, [{}, dict(values)], seeds)",
        "programs_of(search.space.base, [{}, dict(values)], tuple(range(count)))",
        "test_tune_search.py::test_the_best_and_the_defaults_are_trained_on_the_same_seeds_that_the_search_has_not_seen",
    ),
    "the best is confirmed as short as it was searched": Bug(
        "tools/tune/confirm.py",
        "programs_of(search.space.base,",
        "programs_of(search.base,",
        "test_tune_search.py::test_the_best_and_the_defaults_are_trained_on_the_same_seeds_that_the_search_has_not_seen",
    ),
    "ranks by whether intervals touch": Bug(
        "tools/tune/result.py",
        'sum(low > line["high"] for low in lows)',
        'sum(low > line["low"] for low in lows)',
        "test_tune_search.py::test_a_rank_counts_the_points_that_are_better_beyond_doubt",
    ),
    "words in one program with others": Bug(
        "tools/tune/programs.py",
        "shapes.setdefault(json.dumps(shape, sort_keys=True), [])",
        'shapes.setdefault(json.dumps({**shape, "hidden_sizes": 0}, sort_keys=True), [])',
        "test_tune_search.py::test_there_are_as_many_programs_as_shapes",
    ),
    "a halved search forgets who was dropped": Bug(
        "population/halving.py",
        "standing.active, standing.total, standing.count = kept",
        "_, standing.total, standing.count = kept",
        "test_population_search.py::test_halving_stopped_at_any_call_resumes_bit_for_bit",
    ),
    "a resumed member evolves from its first floats": Bug(
        "population/evolution.py",
        "hyper = hyper._replace(**{name: np.asarray(x) for name, x in kept.items()})",
        "assert kept",
        "test_population_search.py::test_evolution_stopped_after_any_round_resumes_bit_for_bit",
    ),
    "regress takes before over now": Bug(
        "tools/regress.py",
        "for cell in (now, before)]",
        "for cell in (before, now)]",
        "test_regress.py::test_ratio_is_now_over_before_as_printed",
    ),
    "regress starts the working tree twice": Bug(
        "measure/relay.py",
        "relay.commands.get(cell.id, relay.command)",
        "relay.command",
        "test_regress.py::test_both_versions_run_in_one_relay_and_share_their_programs",
    ),
    "an answer to an earlier request is taken for the present one": Bug(
        "measure/process.py",
        'if self.requests and message.get("number") != self.requests:',
        "if False:",
        "test_relay_process.py::test_answers_that_nobody_asked_for_are_not_taken_for_later_ones",
    ),
}


def made(bug: Bug, source: Path) -> str:
    """The file's text with the bug."""
    text = (source / bug.file).read_text()
    if text.count(bug.right) != 1:
        raise SystemExit(f"{bug.file} has {text.count(bug.right)} times: {bug.right}")
    return text.replace(bug.right, bug.wrong)


def fails(bug: Bug, source: Path, log: Path) -> bool:
    """Whether the bug's test fails on the package in `source`, with the bug in it."""
    path, right = source / bug.file, (source / bug.file).read_text()
    path.write_text(made(bug, source))
    try:
        child = os.fork()
        if not child:
            run(bug.test, source, log)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        path.write_text(right)
    if status not in (0, 1):
        raise SystemExit(f"{bug.test} could not be run ({status}): {log.read_text()[-2000:]}")
    return status == 1


def run(test: str, source: Path, log: Path) -> None:
    """Run a test on the package in `source` and end this process with pytest's exit code."""
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.path.insert(0, str(source.parent))
    os.environ["PYTHONPATH"] = str(source.parent)
    os.chdir(ROOT)
    code = 70
    try:
        code = int(import_module("pytest").main([*OPTIONS, f"tests/{test}"]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main(names: list[str]) -> int:
    """The number of bugs that no test noticed."""
    for name in PRELOADED:
        import_module(name)
    survived = 0
    with tempfile.TemporaryDirectory(prefix="benchback-bugs-") as folder:
        source = Path(folder) / "src" / "benchback"
        shutil.copytree(ROOT / "src" / "benchback", source, ignore=shutil.ignore_patterns("__pycache__"))
        for name in names or BUGS:
            started = time.monotonic()
            caught = fails(BUGS[name], source, Path(folder) / "log")
            survived += not caught
            print(f"{'caught' if caught else 'SURVIVED'} {name} in {time.monotonic() - started:.1f} s", flush=True)
    return survived


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
