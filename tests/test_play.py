"""Videos: what is shown is what the policy does, the files can be read again, and refusals name the remedy."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import numpy as np
import pytest
from conftest import TINY
from PIL import Image

from benchback.agent import Weights, start
from benchback.backends import xla
from benchback.errors import InputError
from benchback.tools import play
from benchback.tools.play import gymnasium, gymnax, steps, video
from benchback.training import checkpoint, run_dir
from benchback.training.checkpoint import Checkpoint
from benchback.training.evaluate import evaluate
from benchback.training.run import Run, build


@cache
def fresh(env: str, backend: str = "purejax", mode: str = "best") -> tuple[Run, Weights]:
    """A run that has learnt nothing yet, and its weights."""
    run = Run(TINY, env=env, backend=backend, mode=mode)
    agent, _ = build(run)
    return run, agent.export(start(agent, 0))


def frames_of(path: Path, height: int = 400, width: int = 600) -> list[np.ndarray]:
    """The frames of a video, decoded; it must say that it has that size."""
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    decoded = subprocess.run(command, capture_output=True, check=True)
    assert f"{width}x{height}".encode() in decoded.stderr
    return list(np.frombuffer(decoded.stdout, np.uint8).reshape(-1, height, width, 3))


def changes(frames: list[np.ndarray]) -> int:
    return sum(not np.array_equal(a, b) for a, b in pairwise(frames))


def test_a_video_shows_the_episodes_of_an_evaluation(tmp_path: Path) -> None:
    run, weights = fresh("gymnax/CartPole-v1")
    told: list[tuple[str, int, int]] = []
    with xla.optimising(False):
        shown = play.record(run, weights, tmp_path / "x.mp4", seed=3, episodes=2, progress=lambda *x: told.append(x))
        expected = evaluate(run, weights, episodes=1, seed=3)[0]
    assert shown[0].episode_return == expected == shown[0].steps
    assert all(episode.ended for episode in shown)
    frames = frames_of(tmp_path / "x.mp4")
    assert len(frames) == sum(episode.steps for episode in shown) == len(told)
    assert changes(frames) > len(frames) / 2
    assert [path.name for path in tmp_path.iterdir()] == ["x.mp4"]


def test_a_board_becomes_a_gif_and_is_cut_where_it_is_told(tmp_path: Path) -> None:
    run, weights = fresh("gymnax/Breakout-MinAtar")
    with xla.optimising(False):
        shown = play.record(run, weights, tmp_path / "x.gif", max_steps=5, frames_per_s=4.0)
    assert [(episode.steps, episode.ended) for episode in shown] == [(5, False)]
    frames = frames_of(tmp_path / "x.gif", 500, 600)
    assert len(frames) == 5
    assert changes(frames) == 4
    with Image.open(tmp_path / "x.gif") as image:
        assert (image.format, image.info["duration"]) == ("GIF", 250)


def test_a_native_torch_environment_is_drawn_as_its_twin() -> None:
    run, weights = fresh("torch/CartPole-v1", "pytorch", "none")
    film = play.film(run, weights, seed=0)
    frames = list(islice(film.frames, 8))
    assert [frame.episode_return for frame in frames] == list(range(1, 9))
    assert changes([frame.image for frame in frames]) >= 3  # a cart may move by less than a pixel
    assert film.frames_per_s == 50


def test_gymnasium_draws_what_the_policy_does_there() -> None:
    run, weights = fresh("gymnax/CartPole-v1")
    with xla.optimising(False):
        frames = list(islice(gymnasium.film(run, weights, seed=0).frames, 40))
    ends = [i for i, frame in enumerate(frames) if frame.ended]
    assert ends
    assert [frame.episode_return for frame in frames[: ends[0] + 1]] == list(range(1, ends[0] + 2))
    assert frames[ends[0] + 1].episode_return == 1
    assert frames[0].image.shape == (400, 600, 3)
    assert changes([frame.image for frame in frames]) > 20


@pytest.mark.parametrize("drawn_by", [gymnax, gymnasium])
def test_memory_begins_anew_with_every_episode(drawn_by: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that counts its steps in its memory counts those of the episode."""
    remembered: list[int] = []

    def counting(*arguments: Any) -> Any:
        playing = player(*arguments)
        agent = playing.agent

        def act(state: Any, memory: int, obs: Any) -> tuple[int, Any]:
            remembered.append(memory)
            return memory + 1, agent.act(state, (), obs)[1]

        return playing._replace(agent=replace(agent, act=act, initial_memory=lambda num_envs: 0))

    player = steps.player
    monkeypatch.setattr(drawn_by, "player", counting)
    with xla.optimising(False):
        frames = list(islice(drawn_by.film(*fresh("gymnax/CartPole-v1"), seed=0).frames, 40))
    assert any(frame.ended for frame in frames)
    assert remembered == [frame.episode_return - 1 for frame in frames]


@pytest.mark.parametrize("env", ["gymnax/MemoryChain-bsuite", "probe/OneStep"])
def test_what_nothing_draws_is_refused(env: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="draw"):
        play.record(*fresh(env), tmp_path / "x.mp4")
    assert not list(tmp_path.iterdir())


def test_files_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    (tmp_path / "there.gif").touch()
    for name, message in (("x.avi", "videos are"), ("there.gif", "exists"), ("no/x.gif", "is not a folder")):
        with pytest.raises(InputError, match=message):
            video.check(tmp_path / name)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"pygame is needed .* pip install '\.\[play\]'"), video.needed("play"):
        raise ImportError("No module named 'pygame'", name="pygame")
    monkeypatch.setenv("MUJOCO_GL", "egl")
    with pytest.raises(InputError, match="apt-get install libegl1 libegl-mesa0 libgl1-mesa-dri"), gymnasium.drawing():
        raise AttributeError("'NoneType' object has no attribute 'eglQueryString'")
    with pytest.raises(ModuleNotFoundError), gymnasium.drawing():
        raise ModuleNotFoundError("No module named 'OpenGL'")


def test_the_command_line_plays_a_run_folder(
    benchback: Callable[..., subprocess.CompletedProcess], tmp_path: Path
) -> None:
    run, weights = fresh("gymnax/CartPole-v1")
    checkpoint.write(run_dir.create(tmp_path / "run", run).checkpoint, Checkpoint(weights, 6, run.to_dict()))
    done = benchback("play", "run", "--max-steps", "7", "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["video"] == "run/play.mp4"
    assert found["episodes"] == [{"episode_return": 7.0, "steps": 7, "ended": False}]
    assert len(frames_of(tmp_path / "run" / "play.mp4")) == 7
    for arguments, message in (
        (["run"], "exists; choose another --out"),
        (["nowhere"], "is not a run folder"),
        (["run", "--episodes", "0"], "must be at least 1"),
    ):
        refused = benchback("play", *arguments)
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
        assert message in refused.stderr
