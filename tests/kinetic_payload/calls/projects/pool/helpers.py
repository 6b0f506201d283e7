ONE = 1


def doubled(x):
    return 2 * x
