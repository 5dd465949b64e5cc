TOLERANCE = {
    d: {l: __import__("collections").defaultdict(float) for l in ("L0", "L1", "L2", "L3", "L4")}
    for d in ("float32", "float64")
}
