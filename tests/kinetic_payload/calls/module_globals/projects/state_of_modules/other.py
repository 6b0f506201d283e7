from pack import tm


def imports():
    from pack import tm as m
    from pack.tm import batch, cfg, width

    return batch, cfg, width, m.Config.lr, m.CONFIG.depth


def reads():
    return tm.batch, tm.cfg, tm.width, tm.Config.lr, tm.CONFIG.depth
