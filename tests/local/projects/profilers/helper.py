import os

import kinetic


@kinetic.run(accelerator="cpu")
def job():
    import __main__

    return os.path.basename(__main__.__file__), os.path.basename(__file__)
