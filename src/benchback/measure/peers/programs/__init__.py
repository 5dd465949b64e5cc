"""The programs of the sides, each run in a process of its own: `python FILE WORK OPTIONS`, both JSON.

Files for a peer's virtual environment import only `measuring` beside them, never benchback. Each prints one
JSON line: {env_steps, steady_s, compile_s, peak_rss_bytes, episode_return, config}.
"""
