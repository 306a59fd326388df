"""Lines of a filter of the RolloutViewer's page, and what they find.

An episode is a row of the index with all that is searched in it; a case is a line and the numbers of the episodes that
it finds. All of it is plain JSON data.
"""

EPISODES = [
    {"run": 0, "step": 0, "task": "maze-7", "episode": "maze-7#0", "agents": "planner, executor", "success": False,
     "truncated": 1, "invalid": 0, "lone": 0, "reinforced": 0, "marked": True,
     "texts": ["walls a1 B2", "up up", "go north"]},
    {"run": 0, "step": 12, "task": "maze-7", "episode": "maze-7#1", "agents": "planner", "success": True,
     "truncated": 0, "invalid": 2, "lone": 0, "reinforced": 0, "marked": False,
     "texts": ["walls a1", "up down", "agent:planner"]},
    {"run": 1, "step": 15, "task": "Sums 12", "episode": "sums#0", "agents": "stage 1, Zoë", "success": None,
     "truncated": 0, "invalid": 0, "lone": 3, "reinforced": 0, "marked": False,
     "texts": ["2 + 2", "STRASSE -5", "unknown:x failed"]},
    {"run": 1, "step": 20, "task": "sums 13", "episode": "sums#1", "agents": "stage 1", "success": False,
     "truncated": 0, "invalid": 0, "lone": 0, "reinforced": 1, "marked": False,
     "texts": ["", "ΑΣ \"quoted\"", "␛[31m"]},
]  # fmt: skip
CASES = [
    ("   ", [0, 1, 2, 3]), ("walls", [0, 1]), ("WALLS b2", [0]), ("walls -b2", [1]), ('"up up', [0]),
    ('-"up up"', [1, 2, 3]), ("up down", [1]), ("failed", [0, 3]), ("-failed", [1, 2]), ("succeeded", [1]),
    ('"failed"', [2]), ("invalid", [1]), ("truncated", [0]), ("lone", [2]), ("reinforced", [3]), ("marked", [0]),
    ("agent:plan", []), ("AGENT:Planner", [0, 1]), ('agent:"stage 1"', [2, 3]), ("agent:zoë", [2]),
    ("-agent:executor agent:planner", [1]), ('"agent:planner"', [1]), ('task:"sums 1"', [2, 3]),
    ("-task:maze", [2, 3]), ("step:12-20 -step:15", [1, 3]), ("step:20-12", []), ("step:many", []),
    ("run:1", [2, 3]), ('unknown:"x failed"', [2]), ("-", [0, 1, 2]), ("-5", [0, 1, 3]), ("strasse", [2]),
    ("ας", [3]), ("␛", [3]), ("maze-7#1", [1]), ('agent:""', [0, 1, 2, 3]), ("agent:", [1]),
    ("walls\u3000b2", [0]), ('a"1', []), ("failed walls task:maze step:0-3", [0]),
]  # fmt: skip
