"""What `benchback --help` prints, and an example for each verb, which its own help and its errors show."""

USAGE = """\
benchback: which neural-network backend should I build my reinforcement-learning project on?

usage: benchback VERB [options]        benchback VERB --help for the options of one, with an example

which backend
  advise             which backend for a project of so many steps and seeds, measured here and now
  studies            the studies that ship; one of them as YAML to edit; the fields of a study
  plan STUDY         what a study would run, in which order, and what it would take
  run STUDY          run a study in isolated processes; run it again to continue
  report STORE       the verdict as one offline page, with every chart and table as files
  compare A B        two stores, strata or variants side by side, exit 1 if something got slower; or machines
  regress            whether the working tree is slower than a commit, backend by backend; exit 1 if so
  doctor             whether this machine can measure, and what to change

agents
  train ALGORITHM    train one agent, or many in one program (--seeds, --vary); writes a run folder
                     (also: train --resume RUN)
  eval RUN           play a trained agent greedily and print its returns (RUN#17: member 17 of many)
  play RUN           a video of a trained agent, mp4 or gif
  eject ALGORITHM    one standalone Python file to start a project from, with nothing of ours in it
  tune SPACE         search over any fields of a run, floats in one program; run it again to continue
  discover           evolve PPO's objective, or hyper-parameters, over whole trainings; run it again to continue
  profile ALGORITHM  where an iteration's time goes: parts, cProfile, the framework's own trace

what is there, and whether it is right
  list               algorithms x backends x modes x units, and the environments
  parity             measure how far each backend is from a float64 oracle; laws of a plug-in
  conform ENV        whether an environment keeps the laws that all must keep: seeds, resets, truncation, ...
  envs time          what a step of each environment costs

stores
  status STORE       where a campaign stands
  list-runs STORE    every attempt at every run
  show STORE RUN     one run with all its samples
  verify STORE       whether a store can be believed: checksums, ledgers, seeds
  export STORE       runs, samples, ratios as csv, json or parquet
  import FILE        results of benchback-rl, its tables by its own formulas

other workloads
  peers              the same work in rejax, stable-baselines3, sbx and baselines, interleaved
  micro              what single operations cost in each backend: forward, collect, update, step
  scale              knees and exponents over environments, width, depth, threads, ...

exit codes: 0 ok, 1 a claim failed, training diverged or the doctor says no, 2 wrong usage or input,
            3 finished with failed runs, 74 input/output error, 130 interrupted
"""

EXAMPLES = {
    "advise": "advise --env gymnax/CartPole-v1 --hidden 256 256 --steps 1e7 --seeds 10",
    "studies": "studies smoke --yaml > mine.yaml",
    "plan": "plan smoke --budget 5m",
    "run": "run smoke --store runs/smoke.sqlite",
    "report": "report runs/smoke.sqlite --out smoke-report",
    "compare": "compare runs/before.sqlite runs/after.sqlite",
    "regress": "regress --against HEAD~3 --backends linen pytorch",
    "doctor": "doctor --seconds 30",
    "train": "train ppo --backend nnx --env gymnax/CartPole-v1 --learning-rate 3e-4 --out runs/first",
    "eval": "eval runs/first --episodes 64",
    "eject": "eject ppo --backend equinox --env gymnax/CartPole-v1 --out my_ppo.py",
    "play": "play runs/first --out video.mp4",
    "tune": "tune ppo --grid learning_rate=1e-4,3e-4 --seeds 3",
    "discover": "discover --env gymnax/CartPole-v1 --agents 32 --generations 60 --num-iterations 20",
    "profile": "profile ppo --backend purejax --compare pytorch",
    "list": "list --json",
    "conform": "conform python:my_module.make",
    "parity": "parity --algorithm td3 --backends linen pytorch",
    "envs": "envs time --envs gymnax/CartPole-v1 --num-envs 32",
    "status": "status runs/smoke.sqlite",
    "list-runs": "list-runs runs/smoke.sqlite",
    "show": "show runs/smoke.sqlite 3f2a",
    "verify": "verify runs/smoke.sqlite",
    "export": "export runs/smoke.sqlite --format parquet --out tables",
    "import": "import results.parquet --out published",
    "peers": "peers --quick",
    "micro": "micro --quick --backends linen pytorch",
    "scale": "scale --backends linen --axes envs --largest 256",
}
"""Verb -> a command that shows what it is for."""


def example(verb: str) -> str:
    """The example of a verb, or of the verb that a longer text begins with."""
    return f"benchback {EXAMPLES[verb.split()[0]]}"
