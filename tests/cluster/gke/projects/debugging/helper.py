def double(x):
    twice = 2 * x
    return twice
